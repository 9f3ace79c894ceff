//! A replica of MariaDB or MySQL that takes the place of its source, with asynchronous replication.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::prelude::*;

use crate::nodes::{Nodes, Tests, await_that, locks_are_free, number, refuses_to_write};

pub(crate) const TESTS: Tests = &[(
    "promoted_replica_has_what_it_received",
    promoted_replica_has_what_it_received,
)];

const SEMAPHORE: Semaphore = Semaphore::from_static("promotion", 2);
const HOUR: Duration = Duration::from_secs(3600);
const HALF_AN_HOUR_AHEAD: &str = "UPDATE diesel_locks_slots SET fence = fence + ((1800000000 DIV 64) << 17) WHERE token IS NOT NULL";
/// Unlike root, this user may not write on a server with `read_only`.
const USER: &str =
    "CREATE DATABASE app; CREATE USER app IDENTIFIED BY ''; GRANT ALL ON app.* TO app";

/// The statements of replication, which have other names on each.
struct Statements {
    follow: String,
    stop: &'static str,
    forget_source: &'static str,
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
                     MASTER_USE_GTID = slave_pos; START SLAVE"
                ),
                stop: "STOP SLAVE",
                forget_source: "RESET SLAVE ALL; SET GLOBAL read_only = 0",
            };
        }
        Self {
            follow: format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root', \
                 SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"
            ),
            stop: "STOP REPLICA",
            forget_source: "RESET REPLICA ALL; SET GLOBAL read_only = 0",
        }
    }
}

fn promoted_replica_has_what_it_received(nodes: &Nodes) {
    let connect = |node| MysqlConnection::establish(&nodes.url(node, "mysql")).expect("a server");
    let mut operator = connect(1);
    let statements = Statements::of(&mut operator, &nodes.url(0, "mysql"));
    operator
        .batch_execute(&format!("SET GLOBAL read_only = 1; {}", statements.follow))
        .expect("it follows the source");
    connect(0).batch_execute(USER).expect("a user");
    let app = |node| {
        let url = nodes.url(node, "app").replace("//root@", "//app@");
        MysqlConnection::establish(&url)
    };

    let mut source = app(0).expect("the source");
    diesel_locks::migrate(&mut source).expect("migrate");
    let lease = || LeaseOptions::new(HOUR);
    let mut kept = source
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the source")
        .expect("a free slot");
    let invoices = Sequence::new("invoice");
    let draw = |conn: &mut MysqlConnection| conn.transaction(|conn| conn.next_number(&invoices));
    assert_eq!(draw(&mut source).expect("a number"), 1);
    await_that(|| app(1).is_ok());
    let mut replica = app(1).expect("the replica");
    await_that(|| {
        diesel::sql_query("SELECT last FROM diesel_locks_sequences")
            .execute(&mut replica)
            .is_ok_and(|rows| rows == 1)
    });
    refuses_to_write(&mut replica);

    // What follows is lost.
    operator.batch_execute(statements.stop).expect("it stops");
    let lost = source
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the source")
        .expect("a free slot");
    assert_eq!(draw(&mut source).expect("a number"), 2);
    diesel::sql_query(HALF_AN_HOUR_AHEAD)
        .execute(&mut source)
        .expect("a clock that was ahead");
    operator
        .batch_execute(statements.forget_source)
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
}
