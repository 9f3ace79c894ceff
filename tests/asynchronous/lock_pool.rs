//! Waits on a `LockPool`, for an object lock or a slot of a transaction.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use diesel::result::Error::NotFound;
use diesel_locks::error::AsyncPoolError;
use diesel_locks::prelude::*;
use diesel_locks::{Async, Error, LockPool, Pool, RequestInfo, RetryPolicy, StopToken};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::locked::{Locked, Runs, WAIT, Work, await_waiters, nothing, result_of, with_request};
use crate::support::blocker::Blocker;
use crate::support::dropped::{LONG, poll_then_drop};
use crate::support::engine::{AsyncConn, BoxFuture, Connections, Engine};
use crate::support::pools::{Kind, Locks};
use crate::support::proxy::Proxy;
use crate::support::watch::Watch;

type Waiter = JoinHandle<Result<(), Error>>;

/// A task that waits, and runs.
fn waiter<E: Engine, K: Kind>(
    locked: Locked,
    locks: &Locks<E, K>,
    wait: Wait,
    runs: &Arc<Runs>,
    number: usize,
) -> Waiter {
    let runs = Arc::clone(runs);
    let work: Work<E::Conn> = Box::new(move |_| {
        Box::pin(async move {
            runs.run(number).await;
            Ok(())
        })
    });
    tokio::spawn(locked.with(locks, wait, work))
}

/// The order of the queue is tested in `src/queue/tests`: one that has just asked the database may be overtaken.
pub(crate) async fn requests_run_one_after_the_other<E: Engine, K: Kind>() {
    const WAITERS: usize = 24;
    for locked in Locked::all() {
        let database = E::new();
        let locks = LockPool::new(K::pool(&database, 4).await);
        let runs = Arc::new(Runs::default());
        let (release, released) = oneshot::channel::<()>();
        let (held, is_held) = oneshot::channel::<()>();
        let work: Work<E::Conn> = Box::new(move |_| {
            Box::pin(async move {
                held.send(()).expect("the test waits");
                released.await.expect("the test says when");
                Ok(())
            })
        });
        let holder = tokio::spawn(locked.with(&locks, WAIT, work));
        is_held.await.expect("it is free");
        let mut waiters = Vec::new();
        for number in 0..WAITERS {
            waiters.push(waiter::<E, K>(locked, &locks, WAIT, &runs, number));
            await_waiters(&locks, number + 1).await;
        }
        assert!(runs.ended().is_empty());
        release.send(()).expect("it waits");
        result_of(holder).await.expect("commit");
        for waiter in waiters {
            result_of(waiter).await.expect("it comes free");
        }
        assert_eq!(runs.ended().len(), WAITERS);
        assert_eq!(locks.waiting(), 0);
    }
}

pub(crate) async fn waiters_leave_connections_to_others<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = Arc::new(E::new());
        let locks = LockPool::new(K::pool(&*database, 8).await);
        let blocker = Blocker::acquire(&database, &locked.held()).await;
        let runs = Arc::new(Runs::default());
        let waiters: Vec<Waiter> = (0..56)
            .map(|number| waiter::<E, K>(locked, &locks, WAIT, &runs, number))
            .collect();
        await_waiters(&locks, 56).await;
        // The attempts of the waiters use one connection at a time.
        let mut others = Vec::new();
        for _ in 0..7 {
            others.push(locks.pool().take().await);
        }
        for _ in 0..10 {
            for conn in &mut others {
                assert_eq!(E::number(conn, "17".to_owned()).await, Ok(17));
            }
        }
        assert_eq!((runs.ended().len(), locks.waiting()), (0, 56));
        drop(others);
        blocker.release().await;
        for waiter in waiters {
            result_of(waiter).await.expect("it comes free");
        }
        assert_eq!((runs.ended().len(), locks.waiting()), (56, 0));
    }
}

/// Until its future is dropped.
pub(crate) async fn requests_are_listed<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = E::new();
        let locks = LockPool::new(K::pool(&database, 4).await);
        let shown = || {
            let shown = |it: RequestInfo| (it.subject.to_string(), it.inside_for.is_some());
            locks.requests().into_iter().map(shown).collect::<Vec<_>>()
        };
        let (held, is_held) = oneshot::channel::<()>();
        let work: Work<E::Conn> = Box::new(move |_| {
            Box::pin(async move {
                held.send(()).expect("the test waits");
                pending().await
            })
        });
        let request = locked.with(&locks, WAIT, work);
        assert_eq!(shown(), [], "it is not polled");
        let holder = tokio::spawn(request);
        is_held.await.expect("it is free");
        let waiter = tokio::spawn(locked.with(&locks, WAIT, nothing()));
        await_waiters(&locks, 1).await;
        let requests = shown();
        let inside: Vec<_> = requests.iter().map(|(_, is_inside)| *is_inside).collect();
        assert_eq!(inside, [true, false]);
        let names = |(subject, _): &(String, bool)| subject.contains(locked.name());
        assert!(requests.iter().all(names), "{requests:?}");
        for task in [waiter, holder] {
            task.abort();
            assert!(task.await.is_err_and(|error| error.is_cancelled()));
        }
        assert_eq!(shown(), []);
    }
}

/// The application polls each of these futures once. On a busy machine answers may come within that poll. If one of the futures
/// then holds the lock, or works while the next two have the other connections, the test repeats the round.
pub(crate) async fn free_is_acquired_beside_futures_that_are_not_polled<E: Engine, K: Kind>() {
    const FUTURES: usize = 12;
    for locked in Locked::all() {
        let database = Arc::new(E::new());
        let watch = Watch::new(&*database);
        let mut rounds = 0;
        loop {
            let locks = LockPool::new(K::pool(&*database, 4).await);
            // The tables of a semaphore are made by its first request.
            let first = locked.with(&locks, WAIT, nothing());
            first.await.expect("it is free");
            let begun = Arc::new(AtomicUsize::new(0));
            let mut context = Context::from_waker(Waker::noop());
            let mut futures: Vec<_> = (0..FUTURES)
                .map(|_| {
                    let begun = Arc::clone(&begun);
                    let work: Work<E::Conn> = Box::new(move |_| {
                        begun.fetch_add(1, Ordering::SeqCst);
                        Box::pin(async { Ok(()) })
                    });
                    locked.with(&locks, WAIT, work)
                })
                .collect();
            futures.retain_mut(|future| future.as_mut().poll(&mut context).is_pending());
            let ended = FUTURES - futures.len();
            let limit = Wait::AtMost(Duration::from_secs(15));
            let Err(error) = locked.with(&locks, limit, nothing()).await else {
                break;
            };
            let held = locked.held();
            let is_free = watch.with(move |conn| held.is_free::<E>(conn)).await;
            let works = begun.load(Ordering::SeqCst) > ended;
            assert!(
                (!is_free || works) && rounds < 10,
                "{error:?}, it is free: {is_free}, a future works: {works}"
            );
            rounds += 1;
        }
    }
}

/// One of the pool's connections stays open, and does not answer any more: in the pool's look at it, or in the attempt.
pub(crate) async fn request_ends_although_its_connection_does_not_answer<E: Engine, K: Kind>() {
    // At the same time, because each takes seconds.
    let requests = Locked::all().map(|locked| {
        (1..=6).map(move |message| tokio::spawn(unanswered_request_ends::<E, K>(locked, message)))
    });
    let requests: Vec<_> = requests.into_iter().flatten().collect();
    for request in requests {
        request.await.expect("no panic");
    }
}

async fn unanswered_request_ends<E: Engine, K: Kind>(locked: Locked, message: i64) {
    // What an unanswered COMMIT holds is of no other request.
    let database = E::new();
    let server = database.address().expect("a server");
    let proxy = Proxy::to(&server);
    let stalling = database.by_way_of(proxy.port).expect("a server");
    let locks = LockPool::new(K::pool(&*stalling, 4).await);
    let first = locked.with(&locks, WAIT, nothing());
    first.await.expect("it is free");
    proxy.stall_at(message);
    let limit = Wait::AtMost(Duration::from_secs(1));
    let has_run = Arc::<AtomicBool>::default();
    let runs = Arc::clone(&has_run);
    let work: Work<E::Conn> = Box::new(move |_| {
        runs.store(true, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    });
    match timeout(LONG / 3, locked.with(&locks, limit, work)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => assert!(error.is_busy(), "{message}: {error:?}"),
        // A COMMIT has no limit.
        Err(_) => assert!(has_run.load(Ordering::SeqCst), "{message}: no end"),
    }
}

/// Each of the requests locks an object of its own: they wait for connections and not for locks.
pub(crate) async fn requests_for_free_locks_leave_a_connection_to_others<E: Engine, K: Kind>() {
    const REQUESTS: usize = 40;
    let database = E::new();
    let locks = LockPool::new(K::pool(&database, 4).await);
    let running = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let mut requests = Vec::new();
    for id in 0..REQUESTS {
        let (running, gate) = (Arc::clone(&running), Arc::clone(&gate));
        let work: Work<E::Conn> = Box::new(move |_| {
            Box::pin(async move {
                running.fetch_add(1, Ordering::SeqCst);
                let _open = gate.acquire().await.expect("never closed");
                Ok(())
            })
        });
        let request = LockRequest::new(ObjectId::new("Account", id)).wait(WAIT);
        requests.push(tokio::spawn(with_request(&locks, request, work)));
    }
    let most = if E::ONE_WRITER { 1 } else { 3 };
    let first = Instant::now();
    while running.load(Ordering::SeqCst) < most {
        assert!(first.elapsed() < LONG, "they do not run");
        sleep(Duration::from_millis(1)).await;
    }
    await_waiters(&locks, REQUESTS - most).await;
    for _ in 0..50 {
        let mut conn = timeout(LONG, locks.pool().take()).await.expect("free");
        assert_eq!(E::number(&mut conn, "17".to_owned()).await, Ok(17));
    }
    assert_eq!(running.load(Ordering::SeqCst), most);
    // Futures that are dropped take no place.
    for request in requests.drain(REQUESTS / 2..) {
        request.abort();
        assert!(timeout(LONG, request).await.expect("it ends").is_err());
    }
    await_waiters(&locks, REQUESTS / 2 - most).await;
    gate.add_permits(REQUESTS);
    for request in requests {
        result_of(request).await.expect("the lock");
    }
}

/// A bound on the number of statements in the time that has passed, however long that is: 100 a second. An attempt on SQLite
/// is more statements, which are answered in this process.
pub(crate) async fn many_waiters_send_few_statements<E: Engine, K: Kind>() {
    const WAITERS: usize = 4000;
    for locked in Locked::all() {
        let database = Arc::new(E::new());
        let statements = Arc::new(AtomicUsize::new(0));
        let pool = K::counted(&*database, 8, Arc::clone(&statements)).await;
        let locks = LockPool::new(pool);
        let blocker = Blocker::acquire(&database, &locked.held()).await;
        let stop = StopToken::new();
        let stoppable = locks.stopped_by(&stop);
        let runs = Arc::new(Runs::default());
        let waiters: Vec<Waiter> = (0..WAITERS)
            .map(|number| waiter::<E, K>(locked, &stoppable, Wait::Forever, &runs, number))
            .collect();
        await_waiters(&locks, WAITERS).await;
        // First queries, which others of the process's queues may delay, are no measure: any second under the bound is.
        // A rate that grows with the number of waiters is over it in each.
        let most = if E::ONE_WRITER { 15 } else { 10 };
        let first = Instant::now();
        loop {
            let (before, started) = (statements.load(Ordering::SeqCst), Instant::now());
            sleep(Duration::from_secs(1)).await;
            let sent = statements.load(Ordering::SeqCst) - before;
            let tenths = usize::try_from(started.elapsed().as_millis() / 100).expect("short");
            if (1..most * tenths).contains(&sent) {
                break;
            }
            let seconds = first.elapsed();
            assert!(
                seconds < LONG,
                "{sent} in {tenths} tenths of a second, after {seconds:?}"
            );
        }
        stop.stop();
        for waiter in waiters {
            let stopped = result_of(waiter).await;
            assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
        }
        assert_eq!((runs.ended().len(), locks.waiting()), (0, 0));
        blocker.release().await;
    }
}

/// A future does nothing before it is polled.
pub(crate) async fn time_limit_begins_at_the_first_poll<E: Engine, K: Kind>() {
    const LIMIT: Duration = Duration::from_secs(2);
    async fn check(method: &str, future: BoxFuture<'_, Result<(), Error>>) {
        sleep(LIMIT).await;
        let polled = Instant::now();
        let error = future.await;
        let waited = polled.elapsed();
        assert!(
            matches!(error, Err(Error::LockTimeout { .. })),
            "{method}: {error:?}"
        );
        assert!(waited >= LIMIT, "{method}: {waited:?}");
    }
    // Made in functions, which keep the futures out of that of the test.
    let [object, slot] = Locked::all();
    let wait = Wait::AtMost(LIMIT);
    let request = || LockRequest::new(object.name()).wait(wait);
    let semaphore = Semaphore::new(slot.name(), 1);
    let nothing = async |_: &mut E::Conn| Ok::<_, Error>(());
    let database = Arc::new(E::new());
    let locks = LockPool::new(K::pool(&*database, 1).await);
    // To open a connection may take longer than the limit.
    drop(locks.pool().take().await);

    let blocker = Blocker::acquire(&database, &object.held()).await;
    let waits = || -> BoxFuture<'_, _> { Box::pin(locks.with_object_lock(request(), nothing)) };
    check("LockPool::with_object_lock", waits()).await;
    let mut taken = locks.pool().take().await;
    let waits = with_object_lock(&mut **taken, request());
    check("with_object_lock of a connection", waits).await;
    drop(taken);
    blocker.release().await;

    let blocker = Blocker::acquire(&database, &slot.held()).await;
    let waits = || -> BoxFuture<'_, _> { Box::pin(locks.with_slot(&semaphore, wait, nothing)) };
    check("LockPool::with_slot", waits()).await;
    blocker.release().await;
}

fn with_object_lock<C: AsyncConn>(
    conn: &mut C,
    request: LockRequest,
) -> BoxFuture<'_, Result<(), Error>> {
    Box::pin(conn.with_object_lock(request, async |_: &mut C| Ok::<_, Error>(())))
}

/// Requests it, again while the pool is slow: a request waits for a connection for 200 ms at least.
async fn within<P: Pool<Style = Async>>(
    wait: Wait,
    locked: Locked,
    locks: &LockPool<P>,
) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        let done = locked.with(locks, wait, nothing()).await;
        if tries == 20 || !matches!(done, Err(Error::AsyncPool(_))) {
            return done;
        }
        tries += 1;
    }
}

pub(crate) async fn time_limit_ends_a_wait<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = Arc::new(E::new());
        let locks = LockPool::new(K::pool(&*database, 1).await);
        drop(locks.pool().take().await);
        let blocker = Blocker::acquire(&database, &locked.held()).await;
        for limit in [0, 2].map(Duration::from_secs) {
            let error = within(Wait::AtMost(limit), locked, &locks).await;
            let Err(Error::LockTimeout {
                resource,
                waited,
                limit: Some(shown),
                ..
            }) = error
            else {
                panic!("{error:?}");
            };
            assert_eq!(shown, limit);
            assert!(waited >= limit, "{waited:?}");
            assert!(resource.contains(locked.name()), "{resource}");
        }
        let error = within(Wait::No, locked, &locks).await;
        assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
        let too_long = Wait::AtMost(Duration::MAX);
        let error = locked.with(&locks, too_long, nothing()).await;
        assert!(matches!(error, Err(Error::InvalidWait { .. })), "{error:?}");
        assert_eq!(locks.waiting(), 0);
        // On SQLite any writer holds all slots.
        let is_free = locked == Locked::Object && !E::ONE_WRITER;
        let slot = Semaphore::new(locked.name(), 1);
        let taken = locks.try_with_slot(&slot, async |_| Ok::<_, Error>(()));
        assert_eq!(taken.await.expect("an answer").is_some(), is_free);
        blocker.release().await;
    }
}

/// It is running for a while when its future is dropped.
const COUNT_FOR_A_WHILE: &str = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 500) \
    SELECT COUNT(*) FROM c, c AS d";

/// A handler whose client hangs up drops its own statement. On MySQL the next statement of the connection gets the answer.
pub(crate) async fn statement_that_was_dropped_has_no_effect_on_the_next_request<
    E: Engine,
    K: Kind,
>() {
    let database = E::new();
    let locks = LockPool::new(K::pool(&database, 1).await);
    let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
    for locked in Locked::with_free() {
        // The first time prepares the statement.
        for _ in 0..3 {
            let mut conn = locks.pool().take().await;
            let statement = E::number(&mut conn, COUNT_FOR_A_WHILE.to_owned());
            drop(poll_then_drop(statement, 1, &never).await);
            drop(conn);
            let work: Work<E::Conn> = Box::new(|conn| {
                Box::pin(async move {
                    let counted = E::number(conn, COUNT_FOR_A_WHILE.to_owned()).await?;
                    assert_eq!(counted, 250_000);
                    assert_eq!(E::number(conn, "42".to_owned()).await?, 42);
                    Ok(())
                })
            });
            let done = locked.with(&locks, WAIT, work).await;
            done.unwrap_or_else(|error| panic!("{locked:?}: {error:?}"));
        }
    }
}

pub(crate) async fn stopped_waiter_does_not_run<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = Arc::new(E::new());
        let locks = LockPool::new(K::pool(&*database, 2).await);
        let blocker = Blocker::acquire(&database, &locked.held()).await;
        let runs = Arc::new(Runs::default());
        let shutdown = StopToken::new();
        let client = shutdown.child();
        // The first one polls. The next ones are woken by nothing but the stop.
        let ahead = waiter::<E, K>(locked, &locks, WAIT, &runs, 0);
        await_waiters(&locks, 1).await;
        let forever = Wait::Forever;
        let first = waiter::<E, K>(locked, &locks.stopped_by(&client), forever, &runs, 1);
        let stoppable = locks.stopped_by(&shutdown);
        let others = [2, 3, 4].map(|n| waiter::<E, K>(locked, &stoppable, forever, &runs, n));
        await_waiters(&locks, 5).await;
        client.stop();
        // It is still held.
        let error = result_of(first).await.expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert!(error.to_string().contains(locked.name()), "{error}");
        await_waiters(&locks, 4).await;
        shutdown.stop();
        for other in others {
            let error = result_of(other).await.expect_err("stopped");
            assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        }
        assert!(runs.ended().is_empty());
        blocker.release().await;
        result_of(ahead).await.expect("it comes free");
        let late = waiter::<E, K>(locked, &stoppable, WAIT, &runs, 5);
        let error = result_of(late).await.expect_err("stopped before it began");
        assert!(error.is_busy(), "{error:?}");
        assert_eq!(runs.ended(), [0]);
        let next = waiter::<E, K>(locked, &locks, WAIT, &runs, 6);
        result_of(next).await.expect("it is free");
    }
}

pub(crate) async fn wait_for_a_connection_of_the_pool_ends<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = E::new();
        let locks = LockPool::new(K::pool(&database, 1).await);
        let taken = locks.pool().take().await;
        let limit = Wait::AtMost(Duration::from_millis(100));
        let error = locked.with(&locks, limit, nothing()).await;
        let error = error.expect_err("no connection");
        let timed_out = matches!(error, Error::AsyncPool(AsyncPoolError::TimedOut { .. }));
        assert!(timed_out && error.is_busy(), "{error:?}");
        assert!(!error.is_timeout(), "{error:?}");
        let stop = StopToken::new();
        let runs = Arc::new(Runs::default());
        let forever = Wait::Forever;
        let waits = waiter::<E, K>(locked, &locks.stopped_by(&stop), forever, &runs, 0);
        await_waiters(&locks, 1).await;
        stop.stop();
        let error = result_of(waits).await.expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert!(runs.ended().is_empty());
        drop(taken);
        let next = waiter::<E, K>(locked, &locks, WAIT, &runs, 1);
        result_of(next).await.expect("a connection");
    }
}

pub(crate) async fn error_and_panic_roll_back_and_release<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = E::new();
        let watch = Watch::new(&database);
        let locks = LockPool::new(K::pool(&database, 1).await);
        for panics in [false, true] {
            let work: Work<E::Conn> = Box::new(move |conn| {
                Box::pin(async move {
                    crate::lock_pool_dropped::write(conn, 1).await?;
                    assert!(!panics, "in the closure");
                    Err(NotFound.into())
                })
            });
            let outcome = tokio::spawn(locked.with(&locks, WAIT, work)).await;
            match outcome {
                Ok(result) => {
                    let error = result.expect_err("the closure fails");
                    let of_closure = matches!(error, Error::Database(NotFound));
                    assert!(of_closure && !panics, "{error:?}");
                }
                Err(error) => assert!(error.is_panic() && panics, "{error:?}"),
            }
            locked
                .with(&locks, WAIT, nothing())
                .await
                .expect("it is free");
            assert_eq!(watch.written(1).await, 0, "rolled back");
        }
        assert_eq!(locks.waiting(), 0);
    }
}

/// Also when the time is up before the pool has checked its connection.
pub(crate) async fn free_is_acquired_with_any_limit<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = E::new();
        let locks = LockPool::new(K::pool(&database, 1).await);
        drop(locks.pool().take().await);
        for limit in [
            Wait::No,
            Wait::AtMost(Duration::ZERO),
            Wait::AtMost(Duration::from_nanos(1)),
        ] {
            let acquired = within(limit, locked, &locks).await;
            acquired.expect("it is free");
        }
    }
}

/// On another connection, unless COMMIT was sent.
pub(crate) async fn transaction_is_run_again_after_its_connection_was_lost<E: Engine, K: Kind>() {
    let database = E::new();
    let watch = Watch::new(&database);
    let locks = LockPool::new(K::pool(&database, 2).await);
    let retry = RetryPolicy::max_attempts(3);
    let retried = || TransactionOptions::new().retry(retry).into();
    let locked = || LockRequest::new("Account:4711").retry(retry);
    for (number, sends, transaction) in [
        (1, true, retried()),
        (2, false, retried()),
        (3, true, locked()),
        (4, false, locked()),
    ] {
        let runs = AtomicUsize::new(0);
        let outcome = locks.run_transaction(transaction, async |conn| -> Result<(), Error> {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            crate::lock_pool_dropped::write(conn, number).await?;
            if run == 0 {
                let session = E::session(conn).await.expect("a server");
                watch.end(session).await;
            }
            if sends {
                crate::lock_pool_dropped::write(conn, number).await?;
            }
            Ok(())
        });
        let outcome = outcome.await;
        let runs = runs.into_inner();
        if sends {
            outcome.expect("run again");
            assert_eq!((runs, watch.written(number).await), (2, 4));
        } else {
            let error = outcome.expect_err("nobody knows");
            assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
            assert_eq!((runs, watch.written(number).await), (1, 0));
        }
    }
}
