//! A hot standby of PostgreSQL.

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::{BigInt, Bool, Integer};
use diesel_locks::prelude::*;
use diesel_locks::{
    Async, Error, InspectExt, IsolationLevel, ListOptions, Retention, Shutdown, SlotRenewer,
};

use crate::nodes::{
    HOUR, MINUTE, Nodes, Tests, await_that, locks_are_free, refuses_to_write, ticks_within,
};

pub(crate) const TESTS: Tests = &[
    ("standby_refuses_to_write", standby_refuses_to_write),
    (
        "grants_wait_for_a_silent_standby_and_releases_do_not",
        grants_wait_for_a_silent_standby_and_releases_do_not,
    ),
    (
        "dropped_guards_are_released_behind_a_silent_standby",
        dropped_guards_are_released_behind_a_silent_standby,
    ),
    (
        "asynchronous_shutdown_does_not_wait_for_a_silent_standby",
        asynchronous_shutdown_does_not_wait_for_a_silent_standby,
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
    let locks = standby.held_object_locks(1);
    let error = locks.expect_err("those of the primary");
    assert!(
        matches!(
            error,
            Error::LocksNotShown {
                engine: "PostgreSQL",
                ..
            }
        ),
        "{error:?}"
    );
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

/// Awaits that so many sessions have waited for the standby at their COMMIT for so long.
fn await_waiting(conn: &mut PgConnection, sessions: i64, seconds: u32) {
    let count = format!(
        "(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
         AND query_start <= clock_timestamp() - interval '{seconds} s')"
    );
    await_that(|| {
        diesel::select(diesel::dsl::sql::<BigInt>(&count)).get_result(conn) == Ok(sessions)
    });
}

fn count_held(conn: &mut PgConnection, semaphore: &Semaphore) -> usize {
    let held = conn.held_slots(&ListOptions::new()).expect("rows");
    held.iter()
        .filter(|slot| slot.semaphore == semaphore.name())
        .count()
}

/// The drop of a guard does not wait for the standby; `shut_down` does.
fn dropped_guards_are_released_behind_a_silent_standby(nodes: &Nodes) {
    const SEMAPHORE: Semaphore = Semaphore::from_static("dropped", 2);

    let mut conn = primary(nodes);
    diesel_locks::migrate(&mut conn).expect("migrate");
    let manager = ConnectionManager::<PgConnection>::new(nodes.url(0, "postgres"));
    let pool = Pool::builder().max_size(4).build(manager).expect("a pool");
    let shutdown = Shutdown::new();
    let renewer = shutdown.add_renewer(&SlotRenewer::new(pool));
    let acquire = || {
        let granted = renewer.try_acquire(&SEMAPHORE, LeaseOptions::new(HOUR));
        granted.expect("the primary").expect("a free slot")
    };
    let (dropped, held) = (acquire(), acquire());
    let silent = SilentStandby::new(nodes);

    drop(dropped);
    await_waiting(&mut conn, 1, 0);
    // Others see the release when the standby has it.
    assert_eq!(count_held(&mut conn, &SEMAPHORE), 2);
    assert!(
        conn.try_acquire_slot(&SEMAPHORE, LeaseOptions::new(HOUR))
            .expect("the primary")
            .is_none()
    );

    let ending = thread::spawn(move || shutdown.shut_down(Duration::from_millis(100)));
    await_waiting(&mut conn, 2, 2);
    assert!(!ending.is_finished(), "beyond its limit");
    drop(silent);
    let left = ending.join().expect("no panic");
    assert_eq!(left.slots, [held.slot().clone()]);
    assert_eq!(left.guards, 2, "the dropped one too");
    await_that(|| count_held(&mut conn, &SEMAPHORE) == 0);
}

fn asynchronous_shutdown_does_not_wait_for_a_silent_standby(nodes: &Nodes) {
    use diesel_async::AsyncPgConnection;
    use diesel_async::pooled_connection::AsyncDieselConnectionManager;
    use diesel_async::pooled_connection::deadpool::Pool;

    const SEMAPHORE: Semaphore = Semaphore::from_static("dropped", 2);

    let mut conn = primary(nodes);
    diesel_locks::migrate(&mut conn).expect("migrate");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(nodes.url(0, "postgres"));
    let pool = Pool::builder(manager).build().expect("a pool");
    let shutdown = Shutdown::<Async>::new();
    let renewer = shutdown.add_renewer(&SlotRenewer::new(pool));
    let lease = LeaseOptions::new(HOUR);
    let acquire = || {
        let granted = runtime.block_on(renewer.try_acquire(&SEMAPHORE, &lease));
        granted.expect("the primary").expect("a free slot")
    };
    let (dropped, _held) = (acquire(), acquire());
    let silent = SilentStandby::new(nodes);

    drop(dropped);
    await_waiting(&mut conn, 1, 0);
    let left = runtime.block_on(shutdown.shut_down(Duration::from_millis(100)));
    assert_eq!(left.slots, [], "not released yet");
    assert_eq!(left.guards, 2);
    // The statements are given up, and cancel requests end their waits.
    await_that(|| count_held(&mut conn, &SEMAPHORE) == 0);
    drop(silent);
}

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
    let [old, new] = [0, 1].map(|node| nodes.url(node, "postgres"));
    assert!(ticks_within::<PgConnection>(MINUTE, &old));
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
    let mut conn = PgConnection::establish(&new).expect("the new primary");
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
        !ticks_within::<PgConnection>(three_periods, &new),
        "before the last tick"
    );
    set_clock(&mut conn, port, 0);
    assert!(ticks_within::<PgConnection>(MINUTE, &new));

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
