//! A hot standby of PostgreSQL.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::{BigInt, Bool, Integer};
use diesel_locks::prelude::*;
use diesel_locks::{
    Error, InspectExt, IsolationLevel, ListOptions, Retention, SlotRenewer, StopToken, TimerJob,
};

use crate::nodes::{Nodes, Tests, await_that, locks_are_free, refuses_to_write};

pub(crate) const TESTS: Tests = &[
    ("standby_refuses_to_write", standby_refuses_to_write),
    (
        "grants_wait_for_a_silent_standby_and_releases_do_not",
        grants_wait_for_a_silent_standby_and_releases_do_not,
    ),
    // The last one: afterwards there is no standby.
    (
        "fences_and_numbers_go_on_after_a_promotion",
        fences_and_numbers_go_on_after_a_promotion,
    ),
];

fn standby_refuses_to_write(nodes: &Nodes) {
    let mut primary = primary(nodes);
    diesel_locks::migrate(&mut primary).expect("migrate");
    let kept = LockRequest::new("a").retention(Retention::Kept);
    primary
        .with_object_lock(&kept, |_| Ok::<_, Error>(()))
        .expect("free");
    let mut standby = PgConnection::establish(&nodes.url(1, "postgres")).expect("the standby");
    await_that(|| {
        diesel::sql_query("SELECT 'diesel_locks_sequences'::regclass")
            .execute(&mut standby)
            .is_ok()
    });
    assert_eq!(
        diesel_locks::migrate(&mut standby).expect("nothing to do"),
        [""; 0]
    );
    refuses_to_write(&mut standby);
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let locked = standby.transaction(|conn| conn.lock_object(&lock));
        let error = locked.expect_err("a standby");
        assert!(error.is_read_only(), "{error:?}");
    }
    for transaction in [
        TransactionOptions::new().isolation(IsolationLevel::Serializable),
        TransactionOptions::new().read_write(),
    ] {
        let error = standby
            .run_transaction(transaction, |_| Ok::<_, Error>(()))
            .expect_err("a standby");
        assert!(error.is_read_only(), "{error:?}");
    }
}

/// While it exists, each COMMIT on the primary waits for a standby that is not there.
struct SilentStandby<'a>(&'a Nodes);

impl<'a> SilentStandby<'a> {
    fn new(nodes: &'a Nodes) -> Self {
        set_standbys(nodes, "nobody");
        Self(nodes)
    }
}

impl Drop for SilentStandby<'_> {
    fn drop(&mut self) {
        set_standbys(self.0, "");
    }
}

fn set_standbys(nodes: &Nodes, names: &str) {
    let mut conn = primary(nodes);
    conn.batch_execute(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
    ))
    .expect("set");
    conn.batch_execute("SELECT pg_reload_conf()").expect("read");
    let set = format!("SELECT 1 WHERE current_setting('synchronous_standby_names') = '{names}'");
    await_that(|| diesel::sql_query(&set).execute(&mut conn) == Ok(1));
}

fn primary(nodes: &Nodes) -> PgConnection {
    PgConnection::establish(&nodes.url(0, "postgres")).expect("the primary")
}

/// Does it on the primary, on a thread whose end is awaited, since what it does might never end.
fn ends<T: Send + 'static>(
    nodes: &Nodes,
    work: impl FnOnce(&mut PgConnection) -> Result<T, Error> + Send + 'static,
) -> T {
    let mut conn = primary(nodes);
    let thread = thread::spawn(move || work(&mut conn));
    await_that(|| thread.is_finished());
    thread.join().expect("no panic").expect("done")
}

fn grants_wait_for_a_silent_standby_and_releases_do_not(nodes: &Nodes) {
    const SEMAPHORE: Semaphore = Semaphore::from_static("silent", 2);
    const LONG_ENOUGH: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
                               AND query_start < clock_timestamp() - interval '1300 ms'";

    let lease = || LeaseOptions::new(Duration::from_secs(3600));
    let mut conn = primary(nodes);
    diesel_locks::migrate(&mut conn).expect("migrate");
    let held = conn.try_acquire_slot(&SEMAPHORE, lease());
    let held = held.expect("the primary").expect("a free slot");
    let silent = SilentStandby::new(nodes);

    // The table of locks is not replicated.
    ends(nodes, |conn| conn.with_object_lock("a", |_| Ok(())));
    ends(nodes, |conn| conn.release_slot(held));

    let url = nodes.url(0, "postgres");
    let granted = thread::spawn(move || {
        let mut conn = PgConnection::establish(&url).expect("the primary");
        conn.batch_execute("SET statement_timeout = '1s'")
            .expect("set");
        conn.try_acquire_slot(&SEMAPHORE, lease())
    });
    let waits = format!("SELECT 1 {LONG_ENOUGH}");
    await_that(|| diesel::sql_query(&waits).execute(&mut conn) == Ok(1));
    // A limit of statements does not end the wait, an operator does: the grant is there, and not replicated.
    diesel::sql_query(format!("SELECT pg_cancel_backend(pid) {LONG_ENOUGH}"))
        .execute(&mut conn)
        .expect("canceled");
    let slot = granted.join().expect("no panic").expect("the primary");
    drop(silent);
    conn.release_slot(slot.expect("a free slot"))
        .expect("its own");
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A clock for each node, by its port. Sessions that begin from now on call it in place of the server's own.
const CLOCKS: &str = "\
    CREATE SCHEMA clocks; \
    CREATE TABLE clocks.clock (port integer PRIMARY KEY, ahead interval NOT NULL); \
    CREATE FUNCTION clocks.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS \
    'BEGIN RETURN pg_catalog.clock_timestamp() + coalesce( \
    (SELECT ahead FROM clocks.clock WHERE port = pg_catalog.current_setting(''port'')::integer), ''0''); END'; \
    ALTER DATABASE postgres SET search_path = clocks, pg_catalog, public";

/// Sets the clock of the node with this port, in minutes from that of the machine.
fn set_clock(primary: &mut PgConnection, port: i32, minutes: i32) {
    let set = "INSERT INTO clocks.clock VALUES ($1, make_interval(mins => $2)) \
               ON CONFLICT (port) DO UPDATE SET ahead = excluded.ahead";
    diesel::sql_query(set)
        .bind::<Integer, _>(port)
        .bind::<Integer, _>(minutes)
        .execute(primary)
        .expect("set");
}

/// Makes the tables and the clocks. Returns a session of the standby, whose clock is 50 minutes behind, and its port.
fn with_clocks(nodes: &Nodes) -> (PgConnection, i32) {
    let mut operator = primary(nodes);
    diesel_locks::migrate(&mut operator).expect("migrate");
    operator.batch_execute(CLOCKS).expect("clocks");
    let mut standby = PgConnection::establish(&nodes.url(1, "postgres")).expect("the standby");
    let port = diesel::dsl::sql::<Integer>("current_setting('port')::integer");
    let port = diesel::select(port).get_result(&mut standby);
    let port = port.expect("a port");
    set_clock(&mut operator, port, -50);
    (standby, port)
}

/// Whether the node runs a tick within this time.
fn ticks_within(limit: Duration, nodes: &Nodes, node: usize) -> bool {
    let manager = ConnectionManager::<PgConnection>::new(nodes.url(node, "postgres"));
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
        renewer.run_on_timer(&job, &LeaseOptions::new(MINUTE), |_| {
            has_run.set(true);
            stop.stop();
            Ok::<_, Error>(())
        })
    })
    .expect("no error");
    has_run.get()
}

/// The clock of the promoted standby is 50 minutes behind.
fn fences_and_numbers_go_on_after_a_promotion(nodes: &Nodes) {
    const SEMAPHORE: Semaphore = Semaphore::from_static("promotion", 2);

    let (mut standby, port) = with_clocks(nodes);
    let mut primary = primary(nodes);
    let lease = || LeaseOptions::new(HOUR);
    let held = primary
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the primary")
        .expect("a free slot");
    assert!(ticks_within(MINUTE, nodes, 0));
    let last = primary
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the primary")
        .expect("a free slot");
    assert_ne!(held.number(), last.number());
    let invoices = Sequence::new("invoice");
    let drawn = primary
        .transaction(|conn| conn.next_number(&invoices))
        .expect("a number");
    primary.release_slot(last.clone()).expect("released");

    // The release came last.
    let replayed = format!(
        "SELECT 1 FROM diesel_locks_slots WHERE name = 'promotion' AND fence = {} AND token IS NULL",
        last.fence()
    );
    await_that(|| {
        diesel::sql_query(&replayed)
            .execute(&mut standby)
            .is_ok_and(|rows| rows == 1)
    });
    assert!(
        diesel::select(diesel::dsl::sql::<Bool>("pg_promote()"))
            .get_result::<bool>(&mut standby)
            .expect("promoted")
    );

    // A session that has the clock.
    drop(standby);
    let mut conn = PgConnection::establish(&nodes.url(1, "postgres")).expect("the new primary");
    let first = conn
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the new primary")
        .expect("the slot that was released");
    assert_eq!(first.number(), last.number());
    assert!(
        first.fence() > last.fence(),
        "{} after {}",
        first.fence(),
        last.fence()
    );
    // The old primary does not know that there is another.
    let stale = primary
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the old primary")
        .expect("the slot that was released");
    assert!(
        first.fence() > stale.fence(),
        "{} after {}",
        first.fence(),
        stale.fence()
    );
    // It renews leases too, and locks what is locked on the new one.
    let both = conn.with_object_lock("both", |_| {
        primary.renew_slot(&mut held.clone(), HOUR)?;
        primary.with_object_lock("both", |_| Ok::<_, Error>(()))
    });
    both.expect("on two servers");
    drop(primary);
    let full = conn.try_acquire_slot(&SEMAPHORE, lease());
    assert!(full.expect("the new primary").is_none());
    let next = conn.transaction(|conn| conn.next_number(&invoices));
    assert_eq!(next.expect("a number"), drawn + 1);

    let leases = conn.held_slots(&ListOptions::new()).expect("rows");
    let kept = leases.iter().find(|lease| lease.fence == held.fence());
    let remaining = kept.expect("the lease").remaining;
    assert!(
        remaining > HOUR + 45 * MINUTE,
        "it lasts longer: {remaining:?}"
    );
    let three_periods = Duration::from_secs(3);
    assert!(
        !ticks_within(three_periods, nodes, 1),
        "before the last tick"
    );
    set_clock(&mut conn, port, 0);
    assert!(ticks_within(MINUTE, nodes, 1));

    // As an operator does where grants may have been lost.
    let floor = conn.raise_fences(HOUR).expect("raised");
    conn.release_slot(first).expect("released");
    let second = conn
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the new primary")
        .expect("a free slot");
    assert!(second.fence() > floor, "{} after {floor}", second.fence());

    // With a clock that is ahead leases end early.
    set_clock(&mut conn, port, 90);
    let again = conn.try_acquire_slot(&SEMAPHORE, lease());
    let again = again.expect("the new primary").expect("they have ended");
    assert!(again.fence() > second.fence());
    set_clock(&mut conn, port, 0);

    // The table of locks is not replicated: it is empty, and is used again.
    let rows = diesel::select(diesel::dsl::sql::<BigInt>(
        "(SELECT count(*) FROM diesel_locks_objects)",
    ));
    assert_eq!(rows.get_result::<i64>(&mut conn), Ok(0));
    locks_are_free(&mut conn);
}
