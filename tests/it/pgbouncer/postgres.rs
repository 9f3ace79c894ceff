//! Nearly each statement of this crate through PgBouncer, and what goes wrong with other settings.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{CacheSize, InstrumentationEvent};
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention, RetryPolicy};

use crate::behaviour::application_migrations::{Step, Steps};
use crate::support::Backend;
use crate::support::backend::counters;
use crate::support::pgbouncer::{PgBouncer, Pooled};
use crate::support::postgres::{Postgres, words};
use crate::support::threads::{begin, roll_back};
use crate::support::wrapped_backend::{WrappedBackend, Wrapper};

mod asynchronous;

crate::statement_tests!(Pooled);
crate::waiter_tests!(Pooled);
crate::many_writers_tests!(Pooled);
crate::backend_tests!(Pooled:
    tables::{
        eight_servers_migrate_at_once,
    },
);

/// Statements that are prepared by name, as by default, through a PgBouncer that tells them apart.
mod told_apart {
    use crate::support::pgbouncer::PooledApart;
    use crate::support::postgres::Postgres;

    type Database = PooledApart<Postgres>;

    crate::statement_tests!(Database);
    crate::waiter_tests!(Database);
}

/// Two connections to the server for all.
type Scarce = WrappedBackend<PgBouncer<2>>;

mod two_server_connections {
    use super::Scarce;
    use crate::behaviour as bodies;

    crate::backend_tests!(Scarce:
        contention::{
            thirty_two_connections_lose_no_update_on_both_kinds_of_locks,
            sixteen_connections_take_two_of_ten_ids_each,
            lock_object_in_own_transactions_loses_no_update,
        },
    );
    mod slots {
        use super::Scarce;
        use crate::behaviour::slots as bodies;

        crate::backend_tests!(Scarce:
            capacity::{
                sixty_four_connections_never_hold_more_than_the_permits,
                eight_connections_always_get_one_of_eight_slots,
            },
            guards::{
                #[cfg_attr(not(target_os = "linux"), ignore = "threads are not listed by name")]
                many_guards_are_renewed_by_one_thread,
            },
            rows::{
                thirty_two_connections_use_a_new_semaphore,
                purge_works_while_others_acquire,
            },
        );
    }
    mod sequences {
        use super::Scarce;
        use crate::behaviour::sequences as bodies;

        crate::backend_tests!(Scarce:
            numbering::{
                numbers_have_neither_gaps_nor_repeats,
                thirty_two_connections_use_a_new_sequence,
            },
        );
    }
}

/// The state of a server session that differs from that of a new one.
fn leftovers(conn: &mut PgConnection) -> String {
    words(
        conn,
        "SELECT (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings \
                 WHERE source = 'session') \
             || ' locks ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) \
             || ' statements ' || (SELECT count(*) FROM pg_prepared_statements) \
             || ' channels ' || (SELECT count(*) FROM pg_listening_channels()) \
             || ' cursors ' || (SELECT count(*) FROM pg_cursors WHERE name <> '')",
    )
}

/// The next client of the session finds it as it was.
#[test]
fn server_session_is_restored() {
    let database = Postgres::new();
    let one = PgBouncer::<1>::open(&database);
    let mut conn = Pooled::connect_to(&one.url());
    let mut next = Pooled::connect_to(&one.url());
    let before = leftovers(&mut next);

    let slots = Semaphore::new("one", 1);
    let one_hour = || LeaseOptions::new(Duration::from_secs(3600));
    let sequence = Sequence::new("invoice");
    let mut holder = database.connect();
    begin(&mut holder);
    holder.lock_object("held").expect("free");
    for retention in [Retention::Transient, Retention::Kept] {
        for wait in [Wait::No, Wait::AtMost(Duration::from_millis(20))] {
            for id in ["free", "held"] {
                let lock = LockRequest::new(id).wait(wait).retention(retention);
                let result = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
                assert_eq!(result.is_err(), id == "held", "{result:?}");
                let result = conn.transaction(|conn| conn.lock_object(&lock));
                assert_eq!(result.is_err(), id == "held", "{result:?}");
                assert_eq!(leftovers(&mut next), before, "{lock:?}");
            }
        }
    }
    let mut slot = conn
        .acquire_slot(&slots, one_hour(), Wait::No)
        .expect("free");
    conn.renew_slot(&mut slot, Duration::from_secs(60))
        .expect("ours");
    conn.release_slot(slot).expect("ours");
    conn.with_slot(&slots, Wait::No, |_| Ok::<_, Error>(()))
        .expect("free");
    conn.purge_slots(Duration::ZERO).expect("purge");
    conn.purge_object_locks().expect("purge");
    let serializable = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .retry(RetryPolicy::max_attempts(3));
    conn.run_transaction(serializable, |conn| conn.next_number(&sequence))
        .expect("free");
    assert_eq!(leftovers(&mut next), before);
}

/// Two clients of one session that prepare statements by name, as Diesel does by default: an error that says
/// what to do, on a server that may be left with the other's statement.
#[test]
fn named_prepared_statements_are_rejected_with_advice() {
    let database = Postgres::new();
    let one = PgBouncer::<1>::open(&database);
    let [mut conn, mut other] = [(), ()].map(|()| Postgres::connect_to(&one.url()));
    let slots = Semaphore::new("one", 1);
    let one_hour = || LeaseOptions::new(Duration::from_secs(3600));
    conn.register_semaphores([&slots]).expect("register");
    let slot = conn.try_acquire_slot(&slots, one_hour()).expect("its own");
    assert!(slot.is_some());
    let error = other
        .try_acquire_slot(&slots, one_hour())
        .expect_err("another's");
    assert!(
        matches!(error, Error::PreparedStatementMismatch { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("CacheSize::Disabled"), "{text}");
    assert!(text.contains("max_prepared_statements"), "{text}");

    other.set_prepared_statement_cache_size(CacheSize::Disabled);
    let refused = other
        .try_acquire_slot(&slots, one_hour())
        .expect("an answer");
    assert_eq!(refused, None);
}

/// Why it is not enough that errors are noticed: with the same name on two sessions for two statements, PostgreSQL
/// runs the wrong one, and there is no error. This is of any statement, not of this crate's.
#[test]
fn named_prepared_statement_may_run_another_statement() {
    let database = Postgres::new();
    let two = PgBouncer::<2>::open(&database);
    let [mut ours, mut theirs] = [(), ()].map(|()| Postgres::connect_to(&two.url()));
    let [mut third, mut fourth] = [(), ()].map(|()| Pooled::connect_to(&two.url()));
    let read = |conn: &mut PgConnection, id: i32| -> QueryResult<i32> {
        counters::table.find(id).select(counters::id).first(conn)
    };
    let read_next = |conn: &mut PgConnection, id: i32| -> QueryResult<i32> {
        let larger = counters::table.filter(counters::id.gt(id));
        larger.order(counters::id).select(counters::id).first(conn)
    };
    // Each prepares its first statement in a session of its own.
    begin(&mut third);
    pid(&mut third);
    begin(&mut ours);
    assert_eq!(read(&mut ours, 7), Ok(7));
    let our_session = pid(&mut ours);
    roll_back(&mut third);
    assert_eq!(read_next(&mut theirs, 7), Ok(8));
    roll_back(&mut ours);
    // Of both, ours comes free.
    let sessions = [&mut third, &mut fourth].map(|conn| {
        begin(conn);
        (pid(conn), conn)
    });
    for (session, conn) in sessions {
        if session == our_session {
            roll_back(conn);
        }
    }
    let answer = read_next(&mut theirs, 7);
    assert_eq!(answer, Ok(7), "what we have asked for");
}

/// The number of the server session.
fn pid(conn: &mut PgConnection) -> i64 {
    Postgres::number(conn, "SELECT pg_backend_pid()")
}

/// A request that waits at the pooler has not reached the server, which measures the limit of the wait.
#[test]
fn exhausted_pool_blocks_new_requests() {
    let database = Postgres::new();
    let one = PgBouncer::<1>::with(&database, "query_wait_timeout = 2");
    let mut holder = Pooled::connect_to(&one.url());
    let mut conn = Pooled::connect_to(&one.url());
    let lock = LockRequest::new("free").wait(Wait::AtMost(Duration::from_millis(50)));
    conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
        .expect("free");
    begin(&mut holder);
    pid(&mut holder);
    let started = Instant::now();
    let error = conn
        .with_object_lock(&lock, |_| Ok::<_, Error>(()))
        .expect_err("no session to be had");
    assert!(
        matches!(error, Error::Database(_)),
        "PgBouncer's: {error:?}"
    );
    // What libpq says is that the connection was closed.
    let why = "closing because: query_wait_timeout";
    assert!(one.said().contains(why), "{}", one.said());
    assert!(started.elapsed() >= Duration::from_secs(1));
}

/// Another client takes the session that has the lock, after the first look at the records. A client that comes to that session
/// later is refused too, although the lock is its own there.
#[test]
fn migrations_in_several_sessions_are_refused() {
    let create = "CREATE TABLE app_rows (id INTEGER)";
    let steps = || Steps(vec![Step("1_create", create, true)]);
    let record = "INSERT INTO __diesel_schema_migrations (version) VALUES ('1')";
    for is_recorded in [false, true] {
        let database = Scarce::new();
        let mut other = database.connect();
        if is_recorded {
            Scarce::sql(&mut other, record);
        }
        let holder = Arc::new(Mutex::new(None));
        let held = Arc::clone(&holder);
        let url = database.url();
        let mut conn = database.connect();
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::FinishQuery { query, .. } = event
                && query.to_string().contains("pg_try_advisory_lock")
            {
                let mut taker = Scarce::connect_to(&url);
                begin(&mut taker);
                let holds = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
                let held_there = Scarce::number(&mut taker, holds);
                assert_eq!(held_there, 1, "the session of the lock");
                *held.lock().expect("no panic") = Some(taker);
            }
        });
        let error = diesel_locks::run_migrations(&mut conn, steps()).expect_err("another session");
        assert!(matches!(error, Error::TransactionPooler), "{error:?}");
        let created = "SELECT count(*) FROM pg_class WHERE relname = 'app_rows'";
        assert_eq!(Scarce::number(&mut other, created), 0);

        let taker = holder.lock().expect("no panic").take();
        let mut taker = taker.expect("it was taken");
        begin(&mut other);
        Scarce::number(&mut other, "SELECT 1");
        roll_back(&mut taker);
        let refused = diesel_locks::run_migrations(&mut taker, steps());
        let error = refused.expect_err("another has the lock there");
        assert!(matches!(error, Error::TransactionPooler), "{error:?}");
        roll_back(&mut other);
    }
}
