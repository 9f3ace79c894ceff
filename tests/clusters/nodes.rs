//! The servers of a cluster.

use std::cell::Cell;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use diesel::sql_types::BigInt;
use diesel_locks::prelude::*;
use diesel_locks::{
    Error, InspectExt, ListOptions, Retention, Slot, SlotRenewer, StopToken, TimerJob,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) type Tests = &'static [(&'static str, fn(&Nodes))];

/// The URLs of a cluster's servers, without a database.
#[derive(Clone)]
pub(crate) struct Nodes(Vec<String>);

impl Nodes {
    /// Those that the variable names.
    pub(crate) fn of(variable: &str) -> Self {
        let urls = std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: run the tests with `cargo xtask clusters`")
        });
        let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
        assert!(urls.len() > 1, "{variable} names one server only");
        Self(urls)
    }

    /// A node answers before it is one of the cluster.
    pub(crate) fn await_galera(&self) {
        let ready = format!(
            "SELECT SUM((variable_name = 'wsrep_ready' AND variable_value = 'ON') \
             OR (variable_name = 'wsrep_cluster_size' AND variable_value = {})) \
             FROM information_schema.global_status",
            self.len()
        );
        for url in &self.0 {
            let is_ready = is_so_within(Duration::from_secs(150), || {
                MysqlConnection::establish(url).is_ok_and(|mut conn| number(&mut conn, &ready) == 2)
            });
            assert!(is_ready, "{url} is no node of the cluster");
        }
    }

    /// A server answers before it is a member, and while the group has excluded it. A member whose first attempt to join
    /// fails makes the next after a minute.
    pub(crate) fn await_group_replication(&self) {
        let online = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
                      WHERE member_state = 'ONLINE'";
        for url in &self.0 {
            let mut seen = String::from("nothing");
            let ready = is_so_within(Duration::from_secs(150), || {
                seen = match MysqlConnection::establish(url) {
                    Ok(mut conn) => format!("{} of {}", number(&mut conn, online), self.len()),
                    Err(error) => error.to_string(),
                };
                seen == format!("{0} of {0}", self.len())
            });
            assert!(ready, "members that are ONLINE, as {url} sees them: {seen}");
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The URL of a node with this database.
    pub(crate) fn url(&self, node: usize, database: &str) -> String {
        let url = &self.0[node % self.0.len()];
        let (server, _) = url.rsplit_once('/').expect("a URL with a database");
        format!("{server}/{database}")
    }

    /// A new database that all nodes have.
    pub(crate) fn database(&self) -> Database {
        let name = format!("diesel_locks_{}", uuid::Uuid::new_v4().simple());
        let mut conn = MysqlConnection::establish(&self.0[0]).expect("the first node");
        conn.batch_execute(&format!("CREATE DATABASE {name}"))
            .expect("create a database");
        let database = Database {
            nodes: self.clone(),
            name,
        };
        for node in 0..self.len() {
            let url = self.url(node, &database.name);
            let mut seen = String::new();
            let is_there = is_so_within(Duration::from_secs(60), || {
                let connected = MysqlConnection::establish(&url);
                seen = connected
                    .as_ref()
                    .err()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                connected.is_ok()
            });
            assert!(is_there, "{url}: {seen}");
        }
        database
    }
}

/// A database on all nodes. It stays: on Group Replication a DROP beside what another member still has to apply ends
/// the whole group.
pub(crate) struct Database {
    pub(crate) nodes: Nodes,
    name: String,
}

impl Database {
    /// A database with the tables of this crate, on all nodes.
    pub(crate) fn migrated(nodes: &Nodes) -> Self {
        let database = nodes.database();
        // Several primaries of Group Replication: all writes of this connection's kind go to one.
        let mut conn = database.on(0);
        diesel_locks::assume_single_writer(&mut conn).expect("said");
        diesel_locks::migrate(&mut conn).expect("migrate");
        for node in 1..nodes.len() {
            let mut conn = database.on(node);
            await_that(|| {
                number(&mut conn, "SELECT COUNT(*) FROM __diesel_schema_migrations") >= 3
            });
        }
        database
    }

    /// Its URL on one of the nodes.
    pub(crate) fn url(&self, node: usize) -> String {
        self.nodes.url(node, &self.name)
    }

    /// A connection to one of the nodes.
    pub(crate) fn on(&self, node: usize) -> MysqlConnection {
        let url = self.url(node);
        MysqlConnection::establish(&url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }
}

pub(crate) fn number(conn: &mut MysqlConnection, sql: &str) -> i64 {
    #[derive(QueryableByName)]
    struct Number {
        #[diesel(sql_type = BigInt)]
        number: i64,
    }

    diesel::sql_query(format!("SELECT CAST(({sql}) AS SIGNED) AS number"))
        .get_result::<Number>(conn)
        .expect(sql)
        .number
}

/// Each method that writes is refused.
pub(crate) fn refuses_to_write<C>(conn: &mut C)
where
    C: ObjectLockExt + SemaphoreExt + SequenceExt + Connection,
{
    let read_only = |result: Result<(), Error>| {
        let error = result.expect_err("a standby or a replica");
        assert!(error.is_read_only(), "{error:?}");
    };
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        read_only(conn.with_object_lock(&lock, |_| Ok(())));
        read_only(conn.try_with_object_lock(&lock, |_| Ok(())).map(drop));
    }
    let shared = LockRequest::shared("a");
    read_only(conn.with_object_lock(&shared, |_| Ok(())));
    read_only(conn.try_with_object_lock(&shared, |_| Ok(())).map(drop));
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let granted = conn.try_acquire_slot(&Semaphore::new("promotion", 2), lease);
    read_only(granted.map(drop));
    let drawn = conn.transaction(|conn| conn.next_number(&Sequence::new("invoice")));
    read_only(drawn.map(drop));
    let slot = Slot::from_parts("promotion", 1, uuid::Uuid::new_v4(), 1);
    read_only(conn.transaction(|conn| conn.pin_slot(&slot)));
}

/// Both kinds of locks are free.
pub(crate) fn locks_are_free<C: ObjectLockExt>(conn: &mut C) {
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let locked = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
        locked.expect("free");
    }
}

/// Whether the server runs a tick within this time.
pub(crate) fn ticks_within<C>(limit: Duration, url: &str) -> bool
where
    C: SemaphoreExt + R2D2Connection + Send + 'static,
{
    let manager = ConnectionManager::<C>::new(url);
    let pool = Pool::builder().max_size(2).build(manager).expect("a pool");
    let stop = StopToken::new();
    let renewer = SlotRenewer::new(pool).stopped_by(&stop);
    let has_run = Cell::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            stop.sleep(limit);
            stop.stop();
        });
        let job = TimerJob::new("report", Duration::from_secs(1));
        renewer.run_on_timer(&job, LeaseOptions::new(MINUTE), |_| {
            has_run.set(true);
            stop.stop();
            Ok::<_, Error>(())
        })
    })
    .expect("no error");
    has_run.get()
}

/// While it exists, the server runs nothing.
pub(crate) struct Stopped(Pid);

impl Stopped {
    pub(crate) fn new(conn: &mut MysqlConnection) -> Self {
        #[derive(QueryableByName)]
        struct PidFile {
            #[diesel(sql_type = diesel::sql_types::Text)]
            path: String,
        }

        let query = diesel::sql_query("SELECT @@pid_file AS path");
        let file: PidFile = query.get_result(conn).expect("a name");
        let number = std::fs::read_to_string(file.path).expect("a file");
        let number = number.trim().parse().expect("a number");
        let process = Pid::from_raw(number).expect("a process");
        kill_process(process, Signal::STOP).expect("stopped");
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).expect("continued");
    }
}

/// A semaphore of a server that another one replaces.
pub(crate) const PROMOTION: Semaphore = Semaphore::from_static("promotion", 2);

/// A new primary whose clock is behind prolongs leases; one whose clock is ahead ends them. All slots of the semaphore are held by
/// leases of an hour: `kept` was granted by the old primary, `last` by the new one. `url` is that of a user for whom the server
/// runs `init_connect`, which sets the time of each session to a constant.
pub(crate) fn leases_follow_the_clock(
    operator: &mut MysqlConnection,
    url: &str,
    kept: &Slot,
    last: &Slot,
) {
    let mut set_clock = |minutes: i64| {
        let clock = format!("SET timestamp = UNIX_TIMESTAMP() + {}", minutes * 60);
        let set = format!("SET GLOBAL init_connect = '{clock}'");
        operator.batch_execute(&set).expect("set");
        MysqlConnection::establish(url).expect("the new primary")
    };
    let leases = set_clock(-50)
        .held_slots(&ListOptions::new())
        .expect("rows");
    let lease = leases.iter().find(|lease| lease.fence == kept.fence());
    let remaining = lease.expect("the lease").remaining;
    assert!(
        remaining > HOUR + 45 * MINUTE,
        "it lasts longer: {remaining:?}"
    );
    let again = set_clock(90).try_acquire_slot(&PROMOTION, LeaseOptions::new(HOUR));
    let again = again.expect("the new primary").expect("they have ended");
    assert!(again.fence() > last.fence());
    operator
        .batch_execute("SET GLOBAL init_connect = ''")
        .expect("set");
    assert!(ticks_within::<MysqlConnection>(MINUTE, url));
}

/// What comes to another node comes a moment later.
#[track_caller]
pub(crate) fn await_that(is_so: impl FnMut() -> bool) {
    assert!(
        is_so_within(Duration::from_secs(60), is_so),
        "it does not come within a minute"
    );
}

/// Whether it is so at last.
fn is_so_within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
    true
}
