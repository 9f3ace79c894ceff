use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diesel::{ConnectionError, QueryResult, SqliteConnection};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::{AsyncInspectExt, LeaseOptions, ListOptions, Semaphore, SlotRenewer};

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
    let pool = Pool::builder(manager).max_size(2).build();
    let pool: Pool<Conn> = pool.expect("a pool");
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

/// Longer than [`POOL_TIMEOUT`](crate::jobs::renewer::releases::POOL_TIMEOUT).
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
