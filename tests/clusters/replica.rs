//! A replica of MariaDB or MySQL that takes the place of its source, with asynchronous and semi-synchronous replication.

use std::process::Command;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::nodes::{
    HOUR, MINUTE, Nodes, PROMOTION as SEMAPHORE, Stopped, Tests, await_that,
    leases_follow_the_clock, locks_are_free, number, refuses_to_write, ticks_within,
};

pub(crate) const TESTS: Tests = &[
    (
        "semi_synchronous_replication_ends_at_its_time_out",
        semi_synchronous_replication_ends_at_its_time_out,
    ),
    ("doctor_writes_nothing", doctor_writes_nothing),
    // The last one: afterwards there is no replica.
    (
        "promoted_replica_has_what_it_received",
        promoted_replica_has_what_it_received,
    ),
];

const HALF_AN_HOUR_AHEAD: &str = "UPDATE diesel_locks_slots SET fence = fence + ((1800000000 DIV 64) << 17) WHERE token IS NOT NULL";
/// The statements of replication, which have other names on each.
struct Statements {
    follow: String,
    start: &'static str,
    stop: &'static str,
    forget_source: &'static str,
    /// What names of settings and counters begin with, of the source and of the replica.
    semi: [&'static str; 2],
    /// The schema of counters.
    status: &'static str,
    /// What a server has written to its log.
    log: &'static str,
}

impl Statements {
    fn of(conn: &mut MysqlConnection, source: &str) -> Self {
        let port = source
            .rsplit_once(':')
            .and_then(|(_, rest)| rest.split_once('/'));
        let (port, _) = port.expect("a URL with a port");
        if number(conn, "VERSION() LIKE '%MariaDB%'") == 1 {
            return Self {
                follow: format!(
                    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', \
                     MASTER_USE_GTID = slave_pos"
                ),
                start: "START SLAVE",
                stop: "STOP SLAVE",
                forget_source: "RESET SLAVE ALL; SET GLOBAL read_only = 0",
                semi: ["rpl_semi_sync_master", "rpl_semi_sync_slave"],
                status: "information_schema",
                log: "@@gtid_binlog_pos",
            };
        }
        Self {
            follow: format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root', \
                 SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
            ),
            start: "START REPLICA",
            stop: "STOP REPLICA",
            forget_source: "RESET REPLICA ALL; SET GLOBAL read_only = 0",
            semi: ["rpl_semi_sync_source", "rpl_semi_sync_replica"],
            status: "performance_schema",
            log: "@@gtid_executed",
        }
    }
}

/// A source and its replica, each with a session of the operator, and an application's database.
struct Pair<'a> {
    nodes: &'a Nodes,
    database: &'static str,
    source: MysqlConnection,
    replica: MysqlConnection,
    statements: Statements,
}

impl<'a> Pair<'a> {
    /// Has the replica follow the source, and makes the database.
    fn following(nodes: &'a Nodes, database: &'static str) -> Self {
        let connect =
            |node| MysqlConnection::establish(&nodes.url(node, "mysql")).expect("a server");
        let (source, replica) = (connect(0), connect(1));
        let mut pair = Self {
            statements: Statements::of(&mut connect(0), &nodes.url(0, "mysql")),
            nodes,
            database,
            source,
            replica,
        };
        // Unlike root, this user may not write on a server with `read_only`.
        let user = format!(
            "CREATE DATABASE {database}; CREATE USER IF NOT EXISTS app IDENTIFIED BY ''; \
             GRANT ALL ON {database}.* TO app"
        );
        pair.source.batch_execute(&user).expect("a user");
        let Statements {
            follow,
            start,
            stop,
            ..
        } = &pair.statements;
        let follow = format!("{stop}; SET GLOBAL read_only = 1; {follow}; {start}");
        pair.replica
            .batch_execute(&follow)
            .expect("it follows the source");
        await_that(|| pair.app(1).is_ok());
        pair
    }

    fn app_url(&self, node: usize) -> String {
        self.nodes
            .url(node, self.database)
            .replace("//root@", "//app@")
    }

    fn app(&self, node: usize) -> ConnectionResult<MysqlConnection> {
        MysqlConnection::establish(&self.app_url(node))
    }

    fn stop_replication(&mut self) {
        let stopped = self.replica.batch_execute(self.statements.stop);
        stopped.expect("it stops");
    }

    /// Switches the source to semi-synchronous replication.
    fn be_semi_synchronous(&mut self, timeout: Duration) {
        let Statements {
            semi: [source, replica],
            start,
            stop,
            ..
        } = &self.statements;
        let timeout = timeout.as_millis();
        self.source
            .batch_execute(&format!(
                "SET GLOBAL {source}_timeout = {timeout}; SET GLOBAL {source}_enabled = 1"
            ))
            .expect("set");
        self.replica
            .batch_execute(&format!(
                "SET GLOBAL {replica}_enabled = 1; {stop}; {start}"
            ))
            .expect("set");
        await_that(|| self.is_semi_synchronous());
    }

    /// Whether COMMIT waits for the replica.
    fn is_semi_synchronous(&mut self) -> bool {
        self.status("status", "variable_value = 'ON'") == 1
            && self.status("clients", "variable_value") == 1
    }

    /// How many transactions the replica has confirmed, and how many were committed without.
    fn commits(&mut self) -> [i64; 2] {
        ["yes_tx", "no_tx"].map(|counter| self.status(counter, "variable_value"))
    }

    fn status(&mut self, name: &str, value: &str) -> i64 {
        let Statements { semi, status, .. } = &self.statements;
        let query = format!(
            "SELECT {value} FROM {status}.global_status WHERE variable_name = '{}_{name}'",
            semi[0]
        );
        number(&mut self.source, &query)
    }
}

/// The source does not wait beyond it, and not at all afterwards, until the replica has caught up.
fn semi_synchronous_replication_ends_at_its_time_out(nodes: &Nodes) {
    const TIMEOUT: Duration = Duration::from_secs(2);

    let mut pair = Pair::following(nodes, "semi_synchronous");
    let mut conn = pair.app(0).expect("the source");
    diesel_locks::migrate(&mut conn).expect("migrate");
    conn.register_semaphores([&SEMAPHORE]).expect("slots");
    let invoices = Sequence::new("invoice");
    let draw = |conn: &mut MysqlConnection| conn.transaction(|conn| conn.next_number(&invoices));
    let kept = LockRequest::new("a").retention(Retention::Kept);
    conn.with_object_lock(&kept, |_| Ok::<_, Error>(()))
        .expect("free");
    draw(&mut conn).expect("a number");
    pair.be_semi_synchronous(MINUTE);

    // What the replica confirms before the method returns.
    let lease = || LeaseOptions::new(HOUR);
    let mut slot = None;
    let mut confirmed = |act: &mut dyn FnMut(&mut MysqlConnection)| {
        let [before, _] = pair.commits();
        act(&mut conn);
        let [after, unconfirmed] = pair.commits();
        assert_eq!(unconfirmed, 0);
        after - before
    };
    let grant = &mut |conn: &mut MysqlConnection| {
        slot = conn.try_acquire_slot(&SEMAPHORE, lease()).expect("granted");
    };
    assert_eq!(confirmed(grant), 1);
    let drawn = &mut |conn: &mut MysqlConnection| assert!(draw(conn).is_ok());
    assert_eq!(confirmed(drawn), 1);
    let lock = |conn: &mut MysqlConnection, id: &str| {
        let locked = conn.with_object_lock(id, |_| Ok::<_, Error>(()));
        locked.expect("free");
    };
    assert_eq!(confirmed(&mut |conn| lock(conn, "b")), 1);
    assert_eq!(confirmed(&mut |conn| lock(conn, "a")), 0, "it has a row");
    let held = &mut |conn: &mut MysqlConnection| {
        let held = conn.try_with_slot(&SEMAPHORE, |_| Ok::<_, Error>(()));
        assert_eq!(held.expect("an answer"), Some(()));
    };
    assert_eq!(confirmed(held), 0);
    let release = &mut |conn: &mut MysqlConnection| {
        let slot = slot.take().expect("a free slot");
        conn.release_slot(slot).expect("its own");
    };
    assert_eq!(confirmed(release), 1);

    pair.be_semi_synchronous(TIMEOUT);
    let silent = Stopped::new(&mut pair.replica);
    let [_, unconfirmed] = pair.commits();
    let started = Instant::now();
    let granted = conn.try_acquire_slot(&SEMAPHORE, lease());
    assert!(granted.expect("the source").is_some(), "a free slot");
    assert!(started.elapsed() >= TIMEOUT);
    assert!(!pair.is_semi_synchronous());
    let drawn = draw(&mut conn).expect("a number");
    assert_eq!(pair.commits()[1], unconfirmed + 2);
    drop(silent);
    await_that(|| pair.is_semi_synchronous());
    let mut replica = pair.app(1).expect("the replica");
    let mut applied = || number(&mut replica, "SELECT last FROM diesel_locks_sequences");
    await_that(|| applied() == drawn);

    // Nor without a replica.
    pair.stop_replication();
    let started = Instant::now();
    let drawn = draw(&mut conn).expect("a number");
    assert!(started.elapsed() >= TIMEOUT);
    assert_eq!(applied(), drawn - 1, "a fail-over would lose it");
}

/// What the command `diesel-locks`, which is built beside the tests, finds there, and its exit code.
fn doctor(url: &str) -> (String, Option<i32>) {
    let tests = std::env::current_exe().expect("a path");
    let built = tests.ancestors().nth(2).expect("a directory");
    let output = Command::new(built.join("diesel-locks"))
        .arg("doctor")
        .env("DATABASE_URL", url)
        .output()
        .expect("it is built");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (text, output.status.code())
}

/// A replica that has written to its log can't follow its source any more.
fn doctor_writes_nothing(nodes: &Nodes) {
    let mut pair = Pair::following(nodes, "doctor");
    let mut source = pair.app(0).expect("the source");
    diesel_locks::migrate(&mut source).expect("migrate");
    let some =
        "CREATE USER some IDENTIFIED BY ''; GRANT INSERT, UPDATE, DELETE ON doctor.* TO some";
    pair.source.batch_execute(some).expect("a user");
    let [root, app, some] = ["root", "app", "some"].map(|user| {
        nodes
            .url(1, "doctor")
            .replace("//root@", &format!("//{user}@"))
    });
    await_that(|| MysqlConnection::establish(&some).is_ok());
    let log = pair.statements.log;
    let mut written = || -> String {
        let position = diesel::select(sql::<Text>(log)).get_result(&mut pair.replica);
        position.expect("a position")
    };
    let before = written();

    // An administrator may write in spite of `read_only`.
    let (found, code) = doctor(&root);
    assert_eq!(code, Some(0), "{found}");
    assert!(found.contains("ok       object locks: "), "{found}");
    assert!(found.contains("warning  read_only: ON: "), "{found}");
    assert_eq!(written(), before);

    let (found, code) = doctor(&app);
    assert_eq!(code, Some(1), "{found}");
    let remedy = "so it cannot execute this statement: connect to the primary\n";
    assert!(found.contains(remedy), "{found}");
    assert!(!found.contains("would lack"), "{found}");

    // What `read_only` refuses is no privilege that it lacks.
    let (found, code) = doctor(&some);
    assert_eq!(code, Some(1), "{found}");
    let lacks = "would lack SELECT on diesel_locks_objects (";
    assert!(found.contains(lacks), "{found}");
    let has = ["INSERT", "UPDATE", "DELETE"].map(|it| format!("{it} on diesel_locks_"));
    assert!(!has.iter().any(|it| found.contains(it)), "{found}");
}

fn promoted_replica_has_what_it_received(nodes: &Nodes) {
    let mut pair = Pair::following(nodes, "promotion");
    let mut source = pair.app(0).expect("the source");
    diesel_locks::migrate(&mut source).expect("migrate");
    let lease = || LeaseOptions::new(HOUR);
    let mut kept = source
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the source")
        .expect("a free slot");
    source
        .with_object_lock(LockRequest::shared("a"), |_| Ok::<_, Error>(()))
        .expect("free");
    let invoices = Sequence::new("invoice");
    let draw = |conn: &mut MysqlConnection| conn.transaction(|conn| conn.next_number(&invoices));
    assert!(ticks_within::<MysqlConnection>(MINUTE, &pair.app_url(0)));
    assert_eq!(draw(&mut source).expect("a number"), 1);
    let mut replica = pair.app(1).expect("the replica");
    await_that(|| {
        diesel::sql_query("SELECT last FROM diesel_locks_sequences")
            .execute(&mut replica)
            .is_ok_and(|rows| rows == 1)
    });
    refuses_to_write(&mut replica);

    // What follows is lost.
    pair.stop_replication();
    let lost = source
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the source")
        .expect("a free slot");
    assert_eq!(draw(&mut source).expect("a number"), 2);
    diesel::sql_query(HALF_AN_HOUR_AHEAD)
        .execute(&mut source)
        .expect("a clock that was ahead");
    pair.replica
        .batch_execute(pair.statements.forget_source)
        .expect("promoted");

    let mut conn = replica;
    assert_eq!(draw(&mut conn).expect("a number"), 2, "drawn again");
    let again = conn
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the new source")
        .expect("the slot that was lost");
    assert_eq!(again.number(), lost.number());
    assert!(again.fence() > lost.fence(), "the clocks agree");
    let full = conn.try_acquire_slot(&SEMAPHORE, lease());
    assert!(
        full.expect("the new source").is_none(),
        "one lease was kept"
    );
    let renewed = conn.renew_slot(&mut kept, HOUR).expect("it is known");
    assert!(!renewed.is_expired());
    locks_are_free(&mut conn);

    // As an operator does where grants may have been lost.
    let largest = number(&mut source, "SELECT MAX(fence) FROM diesel_locks_slots");
    assert!(again.fence() < largest, "the clock was ahead");
    conn.raise_fences(HOUR).expect("raised");
    conn.release_slot(again).expect("released");
    let next = conn
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the new source")
        .expect("a free slot");
    assert!(next.fence() > largest, "{} after {largest}", next.fence());

    let url = pair.app_url(1);
    leases_follow_the_clock(&mut pair.replica, &url, &kept, &next);
}
