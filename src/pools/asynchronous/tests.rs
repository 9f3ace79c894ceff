use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::SqliteConnection;
use diesel_async::AsyncConnection;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, bb8, deadpool,
};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use futures_util::future::select;
use tokio::join;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::error::{AsyncPoolError, PoolStep};
use crate::link::Link;
use crate::link::depth::mark_broken;
use crate::rt::permits::Permits;
use crate::{Error, Pool, StopToken};

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

/// Lends a connection, for which there is no permit.
async fn lend<P: Pool>(pool: &P, limit: Duration) -> Result<Option<P::Lent>, Error> {
    let lent = pool.lend(limit, None, None).await?;
    Ok(lent.map(|(conn, _)| conn))
}

/// What a request waited for when its time was up.
fn missed<T>(lent: Result<T, Error>) -> Option<PoolStep> {
    match lent.err() {
        Some(Error::AsyncPool(AsyncPoolError::TimedOut { step, .. })) => step,
        error => panic!("no time-out: {error:?}"),
    }
}

async fn until(limit: Duration, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "it does not become true");
        yield_now().await;
    }
}

#[tokio::test]
async fn time_outs_and_sizes_are_those_of_the_pool() {
    let (bb8, deadpool) = pools(":memory:", SHORT).await;
    assert_eq!((bb8.timeout(), bb8.max_size()), (SHORT, 1));
    let unset = Duration::from_secs(30);
    assert_eq!((deadpool.timeout(), deadpool.max_size()), (unset, 1));
}

#[tokio::test]
async fn request_waits_for_a_connection_up_to_its_limit() {
    let (bb8, _) = pools(":memory:", SHORT).await;
    // Opening may take longer than its limit.
    let deadline = Instant::now() + LONG;
    let _lent = loop {
        match lend(&bb8, LONG).await {
            Ok(lent) => break lent,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
    };
    assert!(timed_out(lend(&bb8, LONG).await), "the pool's limit");
}

#[tokio::test]
async fn connection_that_can_not_be_opened_is_an_error_of_the_pool() {
    let (bb8, deadpool) = pools("/no/such/folder/app.db", SHORT).await;
    // It tries again until the time is up.
    assert!(timed_out(lend(&bb8, LONG).await));
    let error = lend(&deadpool, LONG).await.err().expect("no folder");
    let opened = matches!(error, Error::AsyncPool(AsyncPoolError::Connection(_)));
    assert!(opened && error.is_busy(), "{error:?}");
    deadpool.close();
    let error = lend(&deadpool, LONG).await.err().expect("closed");
    assert!(matches!(error, Error::AsyncPool(AsyncPoolError::Closed)));
}

/// The pool checks the connection by a statement that takes longer than the request waits.
#[tokio::test(flavor = "current_thread")]
async fn request_that_ends_during_the_check_of_a_connection_leaves_it_sound() {
    fn slowly_checked() -> AsyncDieselConnectionManager<Conn> {
        let mut config = ManagerConfig::default();
        config.recycling_method = RecyclingMethod::CustomQuery(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000) SELECT count(*) FROM n"
                .into(),
        );
        AsyncDieselConnectionManager::new_with_config(":memory:", config)
    }

    async fn ends_during_the_check<P: Pool>(pool: &P) {
        drop(lend(pool, LONG).await.expect("opened"));
        assert!(timed_out(lend(pool, Duration::from_millis(1)).await));
        let lent = lend(pool, LONG).await.expect("checked");
        assert!(lent.is_some());
    }

    let bb8 = bb8::Pool::builder().max_size(1).build(slowly_checked());
    ends_during_the_check(&bb8.await.expect("a pool")).await;
    let deadpool = deadpool::Pool::builder(slowly_checked())
        .max_size(1)
        .build();
    ends_during_the_check(&deadpool.expect("a pool")).await;
}

/// Opening takes longer than each request waits.
#[tokio::test]
async fn connection_that_opens_slowly_is_there_for_a_later_request() {
    let mut config = ManagerConfig::<Conn>::default();
    config.custom_setup = Box::new(|url| {
        Box::pin(async move {
            tokio::time::sleep(SHORT * 10).await;
            Conn::establish(url).await
        })
    });
    let manager = AsyncDieselConnectionManager::new_with_config(":memory:", config);
    let pool = deadpool::Pool::builder(manager).max_size(1).build();
    let pool: deadpool::Pool<Conn> = pool.expect("a pool");
    assert!(timed_out(lend(&pool, SHORT).await), "not opened");
    let deadline = Instant::now() + LONG;
    while lend(&pool, SHORT).await.is_err() {
        assert!(Instant::now() < deadline, "opened again and again");
    }
}

#[tokio::test]
async fn pool_that_does_not_wait_lends_what_is_free() {
    let pool = deadpool::Pool::builder(manager(":memory:"))
        .max_size(1)
        .wait_timeout(Some(Duration::ZERO))
        .runtime(::deadpool::Runtime::Tokio1)
        .build();
    let pool: deadpool::Pool<Conn> = pool.expect("a pool");
    // Opening may take longer than a request waits.
    drop(pool.get().await.expect("opened"));
    let lent = lend(&pool, LONG).await.expect("free").expect("free");
    assert!(timed_out(lend(&pool, LONG).await), "in use");
    drop(lent);
}

/// Opening takes a permit.
fn opened_by(permits: &Arc<Semaphore>) -> AsyncDieselConnectionManager<Conn> {
    let permits = Arc::clone(permits);
    let mut config = ManagerConfig::<Conn>::default();
    config.custom_setup = Box::new(move |url| {
        let permits = Arc::clone(&permits);
        Box::pin(async move {
            permits.acquire().await.expect("it is open").forget();
            Conn::establish(url).await
        })
    });
    AsyncDieselConnectionManager::new_with_config(":memory:", config)
}

#[tokio::test]
async fn request_whose_caller_has_left_does_not_wait_in_the_queue() {
    let (_, pool) = pools(":memory:", LONG).await;
    let lent = lend(&pool, LONG).await.expect("free").expect("free");
    for _ in 0..3 {
        assert_eq!(missed(lend(&pool, SHORT).await), Some(PoolStep::Queue));
    }
    let stop = StopToken::new();
    let dropped = async {
        let request = pin!(lend(&pool, LONG));
        select(request, pin!(stop.stopped())).await;
    };
    let (stopped, (), ()) = join!(pool.lend(LONG, Some(&stop), None), dropped, async {
        until(LONG, || pool.status().waiting >= 2).await;
        stop.stop();
    });
    assert!(stopped.expect("stopped").is_none());
    // A connection would be opened for longer.
    until(crate::pools::asynchronous::deadpool::OPENING / 2, || {
        pool.status().waiting == 0
    })
    .await;
    drop(lent);
    assert!(lend(&pool, LONG).await.expect("free").is_some());
}

#[tokio::test]
async fn connection_is_opened_although_the_caller_has_left_when_it_had_left_the_queue() {
    let permits = Arc::new(Semaphore::new(1));
    let pool = deadpool::Pool::builder(opened_by(&permits)).max_size(1);
    let pool: deadpool::Pool<Conn> = pool.build().expect("a pool");
    let lent = pool.get().await.expect("opened");
    let opening = async {
        until(LONG, || pool.status().waiting == 1).await;
        // Out of the pool, so that the next request opens another one.
        drop(deadpool::Object::take(lent));
        until(LONG, || pool.status().size == 0).await;
        for _ in 0..10 {
            yield_now().await;
        }
    };
    let request = tokio::time::timeout(SHORT * 10, lend(&pool, SHORT * 5));
    let (lent, ()) = join!(request, opening);
    assert_eq!(
        missed(lent.expect("its own limit")),
        Some(PoolStep::Connect)
    );
    assert_eq!(pool.status().size, 0, "not opened yet");
    permits.add_permits(1);
    until(LONG, || {
        pool.status().size == 1 && pool.status().available == 1
    })
    .await;
}

/// Without the permit, others would use the places of the pool in which connections are opened for nobody.
#[tokio::test]
async fn permit_is_held_until_the_connection_is_opened() {
    let opens = Arc::new(Semaphore::new(0));
    let pool = deadpool::Pool::builder(opened_by(&opens)).max_size(1);
    let pool: deadpool::Pool<Conn> = pool.build().expect("a pool");
    let share = Arc::<Permits>::default();
    let permit = share.acquire(1, None, None).await;
    let lent = pool.lend(SHORT, None, permit).await;
    assert_eq!(missed(lent), Some(PoolStep::Connect));
    let at_once = || share.acquire(1, Some(Instant::now()), None);
    assert!(at_once().await.is_none(), "a connection is being opened");
    opens.add_permits(1);
    let deadline = Instant::now() + LONG;
    assert!(share.acquire(1, Some(deadline), None).await.is_some());
}

#[tokio::test]
async fn time_outs_and_hooks_of_the_pool_are_told_apart() {
    let never = Arc::new(Semaphore::new(0));
    let pool = deadpool::Pool::builder(opened_by(&never))
        .create_timeout(Some(SHORT))
        .runtime(::deadpool::Runtime::Tokio1)
        .build();
    let pool: deadpool::Pool<Conn> = pool.expect("a pool");
    assert_eq!(missed(lend(&pool, LONG).await), Some(PoolStep::Connect));
    let pool = deadpool::Pool::builder(manager(":memory:"))
        .max_size(1)
        .wait_timeout(Some(SHORT))
        .runtime(::deadpool::Runtime::Tokio1)
        .build();
    let pool: deadpool::Pool<Conn> = pool.expect("a pool");
    drop(pool.get().await.expect("opened"));
    let _lent = lend(&pool, LONG).await.expect("free");
    assert_eq!(missed(lend(&pool, LONG).await), Some(PoolStep::Queue));
    let fails = deadpool::Hook::sync_fn(|_, _| Err(deadpool::HookError::message("no")));
    let pool = deadpool::Pool::builder(manager(":memory:")).post_create(fails);
    let pool: deadpool::Pool<Conn> = pool.build().expect("a pool");
    let error = lend(&pool, LONG).await.err().expect("the hook fails");
    let hook = matches!(error, Error::AsyncPool(AsyncPoolError::Hook(_)));
    assert!(hook && error.has_no_connection_yet(), "{error:?}");
}

#[tokio::test]
async fn broken_connection_is_closed_and_not_kept_by_the_pool() {
    let (_, pool) = pools(":memory:", LONG).await;
    drop(lend(&pool, LONG).await.expect("opened"));
    assert_eq!(pool.status().size, 1);
    let mut lent = lend(&pool, LONG).await.expect("free").expect("free");
    mark_broken(lent.status());
    drop(lent);
    assert_eq!(pool.status().size, 0);
    assert!(lend(&pool, LONG).await.expect("opened").is_some());
}
