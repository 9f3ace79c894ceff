use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::{io, thread};

use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{ConnectionError, QueryResult, SqliteConnection};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, deadpool,
};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use futures_util::future::BoxFuture;
#[cfg(feature = "metrics")]
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::time::sleep;

use crate::api::semaphore::SemaphoreExt;
use crate::jobs::renewer::RenewedSlot;
use crate::jobs::renewer::releases::*;
use crate::link::activity::Activity;
use crate::pools::Lending;
use crate::rt::block_on;
use crate::rt::permits::Permit;
use crate::rt::stop_token::StopToken;
use crate::{AsyncInspectExt, InspectExt, LeaseOptions, ListOptions, Semaphore, SlotRenewer};

const HOUR: Duration = Duration::from_secs(3600);

type SqlitePool = Pool<ConnectionManager<SqliteConnection>>;

/// A pool of one connection to a database with the tables, and its folder.
fn database() -> (tempfile::TempDir, SqlitePool) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = folder.path().join("test.sqlite3").display().to_string();
    let manager = ConnectionManager::<SqliteConnection>::new(url);
    let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
    crate::migrate(&mut *pool.get().expect("a connection")).expect("migrate");
    (folder, pool)
}

/// A slot that the database does not know.
fn unknown() -> Slot {
    Slot {
        deadline: Instant::now() + HOUR,
        ..Slot::from_parts("one", 1, Uuid::new_v4(), 0)
    }
}

fn renew(shared: &Shared<SqlitePool>, slot: Slot) {
    let token = slot.token;
    let renewed = RenewedSlot {
        state: Arc::new(State::new(slot, LeaseOptions::new(HOUR))),
        is_renewed: true,
    };
    shared.lock().slots.insert(token, renewed);
}

fn release_all(shared: &Arc<Shared<SqlitePool>>) -> usize {
    block_on(shared.release_held(HOUR)).len()
}

#[test]
fn release_without_guards_borrows_no_connection() {
    let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
    let pool = Pool::builder().min_idle(Some(0)).build_unchecked(manager);
    let shared = Arc::new(Shared::new(pool.clone()));
    assert_eq!(release_all(&shared), 0);
    assert_eq!(pool.state().connections, 0);
}

/// The leases of two have ended, and the thread has not noticed it yet.
#[test]
fn release_does_not_count_lost_guards() {
    let (_folder, pool) = database();
    let mut conn = pool.get().expect("a connection");
    let shared = Arc::new(Shared::new(pool.clone()));
    let now = Instant::now();
    for deadline in [now, now + HOUR, now] {
        let slot = conn.try_acquire_slot(&Semaphore::new("three", 3), LeaseOptions::new(HOUR));
        let mut slot = slot.expect("an answer").expect("free");
        slot.deadline = deadline;
        renew(&shared, slot);
    }
    drop(conn);
    assert_eq!(release_all(&shared), 1);
    let mut conn = pool.get().expect("a connection");
    assert_eq!(conn.held_slots(&ListOptions::new()).expect("rows"), []);
}

/// When a renewal of others ends, it sets the time of the next one.
#[test]
fn slot_that_makes_progress_again_is_renewed_in_time() {
    let (_folder, pool) = database();
    let shared = Arc::new(Shared::new(pool));
    let slot = unknown();
    renew(&shared, slot.clone());
    // So that no thread is started.
    shared.lock().is_running = true;
    for slot in shared.lock().slots.values_mut() {
        slot.is_renewed = false;
    }
    assert_eq!(shared.lock().remaining(), None);
    Arc::clone(&shared).renew_soon(&slot);
    assert!(shared.lock().remaining().is_some());
}

/// Each renewal and release is sent, and its answer is overdue.
#[cfg(feature = "metrics")]
#[test]
fn release_without_an_answer_is_not_counted_as_a_renewal() {
    let (_folder, pool) = database();
    let shared = Arc::new(Shared::new(pool));
    renew(&shared, unknown());
    let overdue = || {
        let now = Instant::now();
        shared.lock().answer_by = Some(now);
        shared.replace_loop(now);
    };
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        block_on(shared.renew_all(0));
        overdue();
        block_on(shared.release_pending(0));
        overdue();
    });
    let counted = recorder.handle().render();
    let failed = r#"diesel_locks_renewals_total{outcome="failed"} 1"#;
    assert!(counted.contains(failed), "{counted}");
}

/// A pool whose threads only the alarm can start, which tries again.
#[derive(Clone)]
struct FewThreads(SqlitePool);

impl crate::Pool for FewThreads {
    type Connection = SqliteConnection;
    type Style = crate::Blocking;
    type Lent = <SqlitePool as crate::Pool>::Lent;

    const BLOCKS: bool = true;

    fn lend(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
        permit: Option<Permit>,
    ) -> impl Future<Output = Lending<Self::Lent>> + Send {
        self.0.lend(limit, stop, permit)
    }

    fn spawn(
        name: &str,
        apart: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        if thread::current().name() == Some("diesel-locks-alarm") {
            return SqlitePool::spawn(name, apart, work);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn timeout(&self) -> Duration {
        self.0.timeout()
    }

    fn max_size(&self) -> usize {
        1
    }
}

#[test]
fn slot_is_renewed_although_there_was_no_thread_at_first() {
    let (_folder, pool) = database();
    let renewer = SlotRenewer::new(FewThreads(pool));
    let lease = LeaseOptions::new(Duration::from_secs(3));
    let held = block_on(renewer.lease(&Semaphore::new("one", 1), &lease, None));
    let held = held.expect("free");
    let first = held.deadline();
    while held.deadline() == first {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(held.is_held(), "renewed");
}

/// The database has extended the lease by a renewal that it has not answered in time.
#[test]
fn slot_of_a_lost_guard_is_released() {
    let (_folder, pool) = database();
    let mut conn = pool.get().expect("a connection");
    let slot = conn.try_acquire_slot(&Semaphore::new("one", 1), LeaseOptions::new(HOUR));
    let slot = slot.expect("an answer").expect("free");
    drop(conn);
    let shared = Arc::new(Shared::new(pool.clone()));
    let released =
        Arc::clone(&shared).release_in_background(&slot, ReleaseKind::Used, Duration::ZERO);
    let ended = released
        .expect("a thread")
        .recv_timeout(Duration::from_secs(60));
    assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
    let mut conn = pool.get().expect("a connection");
    assert_eq!(conn.held_slots(&ListOptions::new()).expect("rows"), []);
}

/// The row of a tick that was granted and not run keeps its lease until the end of the tick.
#[test]
fn release_of_an_unused_slot_is_retried_for_a_minute_whatever_its_lease() {
    let second = Duration::from_secs(1);
    for (kind, at_least) in [
        (ReleaseKind::Used, MIN_RETRY_TIME),
        (ReleaseKind::Unused, MAX_RETRY_TIME),
    ] {
        let slot = Slot::from_parts("tick", 1, Uuid::nil(), 1);
        let before = Instant::now();
        let (pending, _) = PendingRelease::new(slot, kind, second, Activity::default().begin(None));
        let retried = pending.deadline - before;
        assert!(
            (at_least..at_least + second).contains(&retried),
            "{kind:?}: {retried:?}"
        );
    }
}

type Conn = SyncConnectionWrapper<SqliteConnection>;

type Check = fn(bool) -> BoxFuture<'static, QueryResult<()>>;

/// Drops a guard of a pool that checks connections so, with whether it is the first check.
async fn dropped_guard_is_released(check: Check) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = folder.path().join("test.sqlite3").display().to_string();
    let mut config = ManagerConfig::<Conn>::default();
    // The test reads while the release is committed.
    config.custom_setup = Box::new(|url| {
        let url = url.to_owned();
        Box::pin(async move {
            let mut conn = Conn::establish(&url).await?;
            let set = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL";
            let set = conn.batch_execute(set).await;
            set.map_err(ConnectionError::CouldntSetupConfiguration)?;
            Ok(conn)
        })
    });
    let checked = AtomicBool::new(false);
    config.recycling_method = RecyclingMethod::CustomFunction(Box::new(move |_| {
        check(!checked.swap(true, Ordering::SeqCst))
    }));
    let manager = AsyncDieselConnectionManager::new_with_config(url, config);
    let pool = deadpool::Pool::builder(manager).max_size(2).build();
    let pool: deadpool::Pool<Conn> = pool.expect("a pool");
    let mut conn = pool.get().await.expect("a connection");
    crate::migrate_async(&mut conn).await.expect("migrate");
    let semaphore = Semaphore::new("one", 1);
    let lease = LeaseOptions::new(Duration::from_secs(3600));
    // On a new connection, which is not checked.
    let guard = SlotRenewer::new(pool).try_acquire(&semaphore, &lease).await;
    drop(guard.expect("an answer").expect("free"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !conn
        .held_slots(&ListOptions::new())
        .await
        .expect("rows")
        .is_empty()
    {
        assert!(Instant::now() < deadline, "not released");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Longer than [`POOL_TIMEOUT`].
#[tokio::test]
async fn dropped_guard_is_released_with_a_pool_that_checks_slowly() {
    dropped_guard_is_released(|_| {
        Box::pin(async {
            sleep(Duration::from_millis(150)).await;
            Ok(())
        })
    })
    .await;
}

#[tokio::test]
async fn dropped_guard_is_released_after_a_panic() {
    dropped_guard_is_released(|is_first| {
        assert!(!is_first, "as planned");
        Box::pin(async { Ok(()) })
    })
    .await;
}
