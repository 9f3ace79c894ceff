//! How this crate runs futures and waits: on threads that block, and in tasks of tokio.
//!
//! On a connection that blocks, [`block_on`] polls the future, and each wait in it takes the thread, so that the future is
//! ready when it is polled for the first time: without a runtime, a thread or an allocation. In a task, the same wait uses
//! tokio's timers. The waker tells which of both it is.

pub(crate) mod alarm;
pub(crate) mod backoff;
pub(crate) mod permits;
#[cfg_attr(
    not(feature = "_pool"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "only waits on a pool can be stopped"
    )
)]
pub(crate) mod stop_token;
#[cfg(feature = "_async")]
pub(crate) mod task;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a task waits for the answer to a statement after the time limit. A shorter time would lose the connections of a
/// server that is only slow.
pub(crate) const LATEST_ANSWER: Duration = Duration::from_secs(2);

/// Whether what is waited for has come.
pub(crate) enum Polled<T> {
    Ready(T),
    Pending {
        /// When it is to be polled again, if it is not woken before.
        until: Option<Instant>,
    },
}

/// Returns the result of a future over connections that block.
///
/// # Panics
///
/// If the future is not ready, which is an error in this crate.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(&BLOCKS)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!(
            "a future over a blocking connection was not ready: this is an error in diesel-locks"
        ),
    }
}

/// The waker of [`block_on`], by which a wait finds out that it may take the thread. Nothing wakes it.
static BLOCKS: LazyLock<Waker> = LazyLock::new(|| Arc::new(Blocks).into());

struct Blocks;

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {}
}

/// Whether [`block_on`] polls this future. If not, it may not be polled for a while, although it was woken: the application
/// may hold it and poll another.
pub(crate) async fn blocks() -> bool {
    poll_fn(|context| Poll::Ready(BLOCKS.will_wake(context.waker()))).await
}

/// Pauses for this time. In a task it panics outside a runtime of tokio, and in one without timers, as all waits do.
pub(crate) async fn pause(time: Duration) {
    if blocks().await {
        thread::sleep(time);
    } else {
        #[cfg(feature = "_async")]
        tokio::time::sleep(time).await;
    }
}

/// Waits until `poll` is ready. Calls it once at the beginning, when its waker is woken, and at the time that it has returned.
/// When it is to be called again before, it has the waker of its last call woken, once.
pub(crate) async fn wait<T>(mut poll: impl FnMut(&Waker) -> Polled<T> + Send) -> T {
    if blocks().await {
        return wait_with_thread(&mut poll);
    }
    #[cfg(feature = "_async")]
    return task::wait(&mut poll).await;
    #[cfg(not(feature = "_async"))]
    unreachable!("there are no tasks");
}

/// Waits for the answer of a server. A task drops the work, and returns `None`, when that takes longer than `limit`. A thread
/// waits on.
pub(crate) fn answer_within<T: Send>(
    limit: Duration,
    work: impl Future<Output = T> + Send,
) -> impl Future<Output = Option<T>> + Send {
    answers_within(limit, Duration::ZERO, work)
}

/// Waits for the answers of a server to the statements of the work. A task drops the work, and returns `None`, when `limit` has
/// passed and for the time `silence` no answer has come. A thread waits on.
pub(crate) async fn answers_within<T: Send>(
    limit: Duration,
    silence: Duration,
    work: impl Future<Output = T> + Send,
) -> Option<T> {
    let mut work = pin!(work);
    if blocks().await {
        return Some(work.as_mut().await);
    }
    #[cfg(feature = "_async")]
    return task::answers_within(limit, silence, work).await;
    #[cfg(not(feature = "_async"))]
    unreachable!("there are no tasks, which have {limit:?} and {silence:?}");
}

fn wait_with_thread<T>(mut poll: impl FnMut(&Waker) -> Polled<T>) -> T {
    let waker = THIS_THREAD
        .try_with(Waker::clone)
        .unwrap_or_else(|_| thread_waker());
    loop {
        match poll(&waker) {
            Polled::Ready(value) => return value,
            Polled::Pending { until: None } => thread::park(),
            Polled::Pending { until: Some(time) } => {
                thread::park_timeout(time.saturating_duration_since(Instant::now()));
            }
        }
    }
}

thread_local! {
    static THIS_THREAD: Waker = thread_waker();
}

pub(crate) fn thread_waker() -> Waker {
    Arc::new(Unpark(thread::current())).into()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Locks it, also after a panic of another holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> thread::Result<T> {
    let mut future = pin!(future);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// Counts the calls of its wakers.
    #[derive(Default)]
    pub(crate) struct Wakes(pub(crate) AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Enters a runtime whose timers never end, for futures that a test polls by hand.
    #[cfg(feature = "_async")]
    pub(crate) fn without_timers<T>(poll: impl FnOnce() -> T) -> T {
        use tokio::runtime::{Builder, Runtime};

        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
            let runtime = Builder::new_current_thread().enable_time().build();
            runtime.expect("a runtime")
        });
        let _context = RUNTIME.enter();
        poll()
    }

    #[test]
    #[should_panic(expected = "was not ready")]
    fn future_that_is_not_ready_panics() {
        block_on(pending::<()>());
    }

    #[test]
    fn panics_are_caught_in_each_poll() {
        let polls = Cell::new(0);
        let mut future = pin!(caught(poll_fn(|_| {
            polls.set(polls.get() + 1);
            assert!(polls.get() < 2, "second poll");
            Poll::<()>::Pending
        })));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Err(panic)) = future.as_mut().poll(&mut context) else {
            panic!("the panic was not caught");
        };
        assert_eq!(panic.downcast_ref(), Some(&"second poll"));
    }

    #[test]
    fn thread_waits_until_it_is_woken_and_the_event_has_come() {
        let set = AtomicBool::new(false);
        let (sender, polls) = channel();
        let event = |waker: &Waker| {
            let is_set = set.load(Ordering::SeqCst);
            let _ = sender.send(waker.clone());
            if is_set {
                Polled::Ready(())
            } else {
                Polled::Pending { until: None }
            }
        };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(wait(event)));
            // Woken without the event, it waits on.
            polls.recv().expect("a first poll").wake();
            let waker = polls.recv().expect("a second poll");
            assert!(!waiter.is_finished());
            set.store(true, Ordering::SeqCst);
            waker.wake();
            waiter.join().expect("no panic");
        });
        // The thread may also wake for no reason, but it does not poll without a wake again and again.
        assert!(polls.try_iter().count() < 10);
    }

    /// A task that waits beside others, in a thread that blocks: the innermost of them tells how.
    #[cfg(feature = "_async")]
    #[test]
    fn runtime_inside_a_future_that_blocks_has_tasks() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        block_on(async {
            assert!(blocks().await);
            runtime.block_on(async {
                assert!(!blocks().await);
                let second = Duration::from_secs(1);
                let slow = answer_within(Duration::from_millis(1), pause(second));
                assert_eq!(slow.await, None, "a thread would have waited on");
                assert!(block_on(blocks()));
            });
        });
    }
}
