//! The metrics, as an exporter for Prometheus shows them.

mod documented;

use std::thread;
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, PooledConnection};
use diesel::{RunQueryDsl, SqliteConnection, sql_query};
use diesel_locks::operation::sqlite::PrepareConnection;
use diesel_locks::prelude::*;
use diesel_locks::testing::{self, Failure};
use diesel_locks::{Error, LockPool, RetryPolicy, SlotRenewer, StopToken};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Nothing that is to happen takes longer.
const LONG: Duration = Duration::from_secs(30);
const PATIENT: Wait = Wait::AtMost(LONG);
const SHORT: Wait = Wait::AtMost(Duration::from_millis(20));
const HOUR: Duration = Duration::from_secs(3600);

const LOCKS: &str = r#"kind="object_lock""#;
const IMPORTS: &str = r#"kind="slot",semaphore="imports""#;
const EXPORTS: &str = r#"kind="slot",semaphore="exports""#;

type Outcome = Result<(), Error>;

struct Metrics(PrometheusHandle);

impl Metrics {
    fn get(&self, name: &str, labels: &str) -> Option<u32> {
        let series = format!("diesel_locks_{name}{{{labels}}} ");
        let text = self.0.render();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(&series));
        values.next()?.parse().ok()
    }

    #[track_caller]
    fn assert(&self, name: &str, labels: &str, value: u32) {
        let found = self.get(name, labels);
        assert_eq!(
            found,
            Some(value),
            "{name} {labels} in\n{}",
            self.0.render()
        );
    }

    /// Waits until so many are counted, or more.
    #[track_caller]
    fn wait_for(&self, name: &str, labels: &str, least: u32) {
        let end = Instant::now() + LONG;
        while self.get(name, labels).is_none_or(|found| found < least) {
            let text = || self.0.render();
            assert!(Instant::now() < end, "{name} {labels} in\n{}", text());
            thread::yield_now();
        }
    }

    #[track_caller]
    fn assert_outcomes<const N: usize>(&self, labels: &str, outcomes: [(&str, u32); N]) {
        for (outcome, number) in outcomes {
            let labels = format!(r#"{labels},outcome="{outcome}""#);
            self.assert("requests_total", &labels, number);
        }
        for gauge in ["waiting_requests", "queued_requests", "inside_requests"] {
            self.assert(gauge, labels, 0);
        }
    }
}

struct Database {
    pool: Pool<ConnectionManager<SqliteConnection>>,
    _directory: tempfile::TempDir,
}

impl Database {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("app.db").display().to_string();
        let pool = Pool::builder().connection_customizer(Box::new(PrepareConnection));
        let pool = pool.build(ConnectionManager::new(file)).expect("a pool");
        diesel_locks::migrate(&mut pool.get().expect("a connection")).expect("no tables yet");
        Self {
            pool,
            _directory: directory,
        }
    }

    fn connect(&self) -> PooledConnection<ConnectionManager<SqliteConnection>> {
        self.pool.get().expect("a connection")
    }
}

/// One test: the recorder is that of the process.
#[test]
fn operations_are_counted_as_documented() {
    let builder = PrometheusBuilder::new().set_buckets(&[0.1, 1.0]);
    let recorder = builder.expect("buckets").install_recorder();
    let metrics = &Metrics(recorder.expect("the only recorder"));
    diesel_locks::describe_metrics();
    metrics.assert_outcomes(LOCKS, [("granted", 0), ("failed", 0)]);
    metrics.assert("renewals_total", r#"outcome="failed""#, 0);
    let database = &Database::new();
    object_locks(metrics, database);
    slots(metrics, database);
    guards(metrics, database);
    documented::check(&metrics.0.render());
}

fn object_locks(metrics: &Metrics, database: &Database) {
    let mut conn = database.connect();
    let locks = LockPool::new(database.pool.clone());
    let stop = StopToken::new();
    thread::scope(|scope| {
        let held = conn.with_object_lock("Bond:1", |_| -> Outcome {
            metrics.assert("inside_requests", LOCKS, 1);
            metrics.assert("waiting_requests", LOCKS, 0);
            let mut other = database.connect();
            let refused = other.try_with_object_lock("Bond:1", |_| -> Outcome { panic!() });
            assert!(refused?.is_none());
            let late = LockRequest::new("Bond:1").wait(SHORT);
            let late = other.with_object_lock(late, |_| -> Outcome { panic!() });
            late.expect_err("it is held");
            scope.spawn(move || other.with_object_lock("Bond:1", |_| -> Outcome { Ok(()) }));
            metrics.wait_for("waiting_requests", LOCKS, 1);
            metrics.assert("queued_requests", LOCKS, 0);
            let locks = locks.stopped_by(&stop);
            let stopped =
                scope.spawn(move || locks.with_object_lock("Bond:1", |_| -> Outcome { panic!() }));
            metrics.wait_for("queued_requests", LOCKS, 1);
            metrics.assert("waiting_requests", LOCKS, 2);
            stop.stop();
            let stopped = stopped.join().expect("no panic");
            assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
            metrics.assert("waiting_requests", LOCKS, 1);
            Ok(())
        });
        held.expect("it is free");
    });
    let held = locks.with_object_lock("Bond:1", |_| -> Outcome {
        metrics.assert("inside_requests", LOCKS, 1);
        Ok(())
    });
    held.expect("it is free");
    let _deadlock = testing::fail_object_lock("Bond:2", Failure::Deadlock, 1);
    let retried = LockRequest::new("Bond:2").retry(RetryPolicy::max_attempts(2));
    let retried = conn.run_transaction(retried, |_| -> Outcome { Ok(()) });
    retried.expect("the second attempt locks it");
    metrics.assert("retries_total", r#"reason="deadlock""#, 1);
    let once = [
        ("refused", 1),
        ("timed_out", 1),
        ("stopped", 1),
        ("failed", 1),
    ];
    metrics.assert_outcomes(LOCKS, once);
    metrics.assert_outcomes(LOCKS, [("granted", 4)]);
    // Those that were granted, timed out or stopped.
    metrics.assert("wait_seconds_count", LOCKS, 6);
    metrics.assert("hold_seconds_count", LOCKS, 4);
}

fn slots(metrics: &Metrics, database: &Database) {
    let mut conn = database.connect();
    let locks = &LockPool::new(database.pool.clone());
    let semaphore = Semaphore::new("imports", 1);
    let lease = || LeaseOptions::new(HOUR);
    let slot = conn.acquire_slot(&semaphore, lease(), Wait::No);
    let slot = slot.expect("it is free");
    metrics.assert("slots_lost_total", IMPORTS, 0);
    let other = database.connect().try_acquire_slot(&semaphore, lease());
    assert!(other.expect("an answer").is_none());
    let late = conn.acquire_slot(&semaphore, lease(), SHORT);
    late.expect_err("it is held");
    thread::scope(|scope| {
        let work = || -> Outcome {
            // The one before may be counted for a moment.
            assert!(metrics.get("inside_requests", IMPORTS) > Some(0));
            Ok(())
        };
        let semaphore = &semaphore;
        let on_connection = scope.spawn(move || {
            let mut conn = database.connect();
            conn.with_slot(semaphore, PATIENT, |_| work())
        });
        metrics.wait_for("queued_requests", IMPORTS, 1);
        metrics.assert("waiting_requests", IMPORTS, 1);
        let on_pool = scope.spawn(move || locks.with_slot(semaphore, PATIENT, |_| work()));
        metrics.wait_for("queued_requests", IMPORTS, 2);
        metrics.assert("waiting_requests", IMPORTS, 2);
        conn.release_slot(slot).expect("it is held");
        for waiter in [on_connection, on_pool] {
            let held = waiter.join().expect("no panic");
            held.expect("it is free");
        }
    });
    let two = Semaphore::new("imports", 2);
    let held = conn.with_slots(&two, 2, SHORT, |_| -> Outcome {
        metrics.assert("inside_requests", IMPORTS, 1);
        Ok(())
    });
    held.expect("they are free");
    let outcomes = [("granted", 4), ("refused", 1), ("timed_out", 1)];
    metrics.assert_outcomes(IMPORTS, outcomes);
    metrics.assert("wait_seconds_count", IMPORTS, 5);
    metrics.assert("hold_seconds_count", IMPORTS, 3);
}

fn guards(metrics: &Metrics, database: &Database) {
    let mut conn = database.connect();
    let renewer = SlotRenewer::new(database.pool.clone());
    let semaphore = Semaphore::new("exports", 1);
    let acquire = |lease| {
        let guard = renewer.acquire(&semaphore, &lease, PATIENT);
        guard.expect("it is free")
    };
    let guard = acquire(LeaseOptions::new(HOUR));
    metrics.assert("inside_requests", EXPORTS, 1);
    // Has it renewed at once.
    let moved = testing::expire_leases(&mut conn, &semaphore, HOUR / 2);
    assert_eq!(moved.expect("an answer"), 1);
    metrics.wait_for("renewals_total", r#"outcome="renewed""#, 1);
    let _lost = testing::fail_slot(&semaphore, Failure::SlotLost, 1);
    metrics.wait_for("hold_seconds_count", EXPORTS, 1);
    metrics.assert("slots_lost_total", EXPORTS, 1);
    drop(guard);
    metrics.assert_outcomes(EXPORTS, [("granted", 1)]);
    let forced = conn.force_release_all(&semaphore);
    forced.expect("an answer");

    let (short, shorter) = (Duration::from_millis(300), Duration::from_millis(1));
    let stalled = acquire(LeaseOptions::new(short).progress_within(shorter));
    metrics.wait_for("slots_stalled_total", EXPORTS, 1);
    drop(stalled);

    let guard = acquire(LeaseOptions::new(short));
    let mut rename = |from: &str, to: &str| {
        let rename = sql_query(format!("ALTER TABLE {from} RENAME TO {to}"));
        rename.execute(&mut conn).expect("no writer");
    };
    rename("diesel_locks_slots", "away");
    metrics.wait_for("renewals_total", r#"outcome="failed""#, 1);
    rename("away", "diesel_locks_slots");
    drop(guard);
}
