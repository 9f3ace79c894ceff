use std::time::Duration;

use diesel::SqliteConnection;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use tokio::join;

use crate::error::AsyncPoolError;
use crate::lender::Lender;
use crate::{Error, StopToken};

type Conn = SyncConnectionWrapper<SqliteConnection>;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

fn manager(url: &str) -> AsyncDieselConnectionManager<Conn> {
    AsyncDieselConnectionManager::new(url)
}

/// Pools of one connection. That of bb8 waits for a connection for this time.
async fn pools(url: &str, timeout: Duration) -> (bb8::Pool<Conn>, deadpool::Pool<Conn>) {
    let bb8 = bb8::Pool::builder()
        .max_size(1)
        .min_idle(0)
        .connection_timeout(timeout)
        .build(manager(url))
        .await;
    let deadpool = deadpool::Pool::builder(manager(url)).max_size(1).build();
    (bb8.expect("a pool"), deadpool.expect("a pool"))
}

fn timed_out<T>(lent: Result<T, Error>) -> bool {
    let error = lent.err().expect("no connection");
    assert!(error.is_busy() && !error.is_timeout(), "{error:?}");
    matches!(error, Error::AsyncPool(AsyncPoolError::TimedOut { .. }))
}

#[tokio::test]
async fn time_outs_and_sizes_are_those_of_the_pool() {
    let (bb8, deadpool) = pools(":memory:", SHORT).await;
    assert_eq!((bb8.timeout(), bb8.max_size()), (SHORT, 1));
    let unset = Duration::from_secs(30);
    assert_eq!((deadpool.timeout(), deadpool.max_size()), (unset, 1));
}

async fn connection_is_awaited<P: Lender>(pool: &P) {
    let lent = pool.lend(LONG, None).await.expect("free").expect("free");
    assert!(timed_out(pool.lend(SHORT, None).await));
    let (next, ()) = join!(pool.lend(LONG, None), async { drop(lent) });
    assert!(next.expect("returned").is_some());
}

#[tokio::test]
async fn request_waits_for_a_connection_up_to_its_limit() {
    let (bb8, deadpool) = pools(":memory:", LONG).await;
    connection_is_awaited(&bb8).await;
    connection_is_awaited(&deadpool).await;
    let (bb8, _) = pools(":memory:", SHORT).await;
    let _lent = bb8.lend(LONG, None).await.expect("free");
    assert!(timed_out(bb8.lend(LONG, None).await), "the pool's limit");
}

async fn stop_ends_the_wait<P: Lender>(pool: &P) {
    let stop = StopToken::new();
    let lent = pool.lend(LONG, Some(&stop)).await.expect("free");
    assert!(lent.is_some(), "not stopped");
    let (stopped, ()) = join!(pool.lend(LONG, Some(&stop)), async { stop.stop() });
    assert!(stopped.expect("stopped").is_none());
    drop(lent);
    // The connection is not lost with the request.
    assert!(pool.lend(LONG, None).await.expect("free").is_some());
}

#[tokio::test]
async fn request_that_is_stopped_gets_no_connection() {
    let (bb8, deadpool) = pools(":memory:", LONG).await;
    stop_ends_the_wait(&bb8).await;
    stop_ends_the_wait(&deadpool).await;
}

#[tokio::test]
async fn connection_that_can_not_be_opened_is_an_error_of_the_pool() {
    let (bb8, deadpool) = pools("/no/such/folder/app.db", SHORT).await;
    // It tries again until the time is up.
    assert!(timed_out(bb8.lend(LONG, None).await));
    let error = deadpool.lend(LONG, None).await.err().expect("no folder");
    let opened = matches!(error, Error::AsyncPool(AsyncPoolError::Connection(_)));
    assert!(opened && error.is_busy(), "{error:?}");
    deadpool.close();
    let error = deadpool.lend(LONG, None).await.err().expect("closed");
    assert!(matches!(error, Error::AsyncPool(AsyncPoolError::Closed)));
}
