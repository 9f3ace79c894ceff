//! Waits of a task of tokio, beside which others run; and a runtime of this crate.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{self, Duration};
use std::{io, thread};

use futures_util::future::{Either, select};
use tokio::runtime::{Builder, Handle};
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::rt::alarm::call_at;
use crate::rt::stop_token::stop_or_end;
use crate::rt::{Polled, lock};

pub(crate) async fn wait<T>(mut poll: impl FnMut(&Waker) -> Polled<T> + Send) -> T {
    let mut timer = pin!(None::<Sleep>);
    poll_fn(|context| {
        loop {
            let time = match poll(context.waker()) {
                Polled::Ready(value) => return Poll::Ready(value),
                Polled::Pending { until: None } => return Poll::Pending,
                Polled::Pending { until: Some(time) } => Instant::from_std(time),
            };
            match timer.as_mut().as_pin_mut() {
                None => timer.set(Some(sleep_until(time))),
                Some(timer) if timer.deadline() == time => {}
                Some(timer) => timer.reset(time),
            }
            let timer = timer.as_mut().as_pin_mut().expect("a timer that is set");
            ready!(timer.poll(context));
            // A test may pause tokio's clock, so that its timers end at once.
            if time.into_std() > time::Instant::now() {
                let waker = context.waker().clone();
                call_at(time.into_std(), || waker.wake());
                return Poll::Pending;
            }
        }
    })
    .await
}

pub(crate) async fn answers_within<T: Send>(
    limit: Duration,
    silence: Duration,
    work: Pin<&mut (impl Future<Output = T> + Send)>,
) -> Option<T> {
    // tokio wakes work that has used up its budget, or that of its task.
    let mut work = pin!(unconstrained(work));
    let woken = Arc::new(Woken {
        is_woken: AtomicBool::new(false),
        task: Mutex::new(Waker::noop().clone()),
    });
    let waker = Waker::from(Arc::clone(&woken));
    // By the system's clock: a test may pause tokio's.
    let mut last = time::Instant::now();
    let mut end = last + limit + silence;
    loop {
        let watched = poll_fn(|context| {
            lock(&woken.task).clone_from(context.waker());
            if woken.is_woken.swap(false, Ordering::SeqCst) {
                last = time::Instant::now();
            }
            work.as_mut().poll(&mut Context::from_waker(&waker))
        });
        let timer = pin!(stop_or_end(None, Some(end)));
        if let Either::Left((answer, _)) = select(watched, timer).await {
            return Some(answer);
        }
        if silence.is_zero() || last + silence <= end {
            return None;
        }
        end = last + silence;
    }
}

/// Whether the work was woken, which only an answer does. The task is polled for its other work too.
struct Woken {
    is_woken: AtomicBool,
    task: Mutex<Waker>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let task = lock(&self.task).clone();
        task.wake();
    }
}

/// A runtime of this crate, on a thread of its own, which the first work starts.
///
/// A destructor can't wait for the server, and the runtime of a future may have been shut down, or, if it has one thread, may
/// not run again. So what dropped futures have left on the server is ended here, and renewers whose runtime has been shut down
/// go on.
static RUNTIME: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let started = start();
    if let Err(error) = &started {
        tracing::warn!(
            target: "diesel_locks::cancel",
            %error,
            "no thread to end what dropped futures have left: the server ends it when their connections are closed"
        );
    }
    started.ok()
});

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("diesel-locks-cancel".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

/// Runs work apart from the runtimes of the application.
#[cfg_attr(
    not(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "_async_pool"
    )),
    allow(dead_code, reason = "SQLite is in this process")
)]
pub(crate) fn spawn_apart(work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = &*RUNTIME {
        runtime.spawn(work);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::consume_budget;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Waits for the last of the times in so many milliseconds from `started`, one after the other. Returns how often it polled.
    async fn polls_until(started: time::Instant, millis: &[u64]) -> usize {
        let mut times: Vec<_> = millis
            .iter()
            .map(|millis| started + Duration::from_millis(*millis))
            .collect();
        let mut polls = 0;
        wait(|_| {
            polls += 1;
            let now = time::Instant::now();
            times.retain(|time| *time > now);
            match times.first() {
                None => Polled::Ready(()),
                Some(time) => Polled::Pending { until: Some(*time) },
            }
        })
        .await;
        polls
    }

    #[tokio::test]
    async fn task_waits_until_the_time_of_the_event_also_when_that_changes() {
        let started = time::Instant::now();
        let polls = polls_until(started, &[3, 20, 40]).await;
        assert!(started.elapsed() >= Duration::from_millis(40));
        assert!(polls <= 4, "{polls} for 3 times");
    }

    /// Beside work of the same task that never pauses for long, as in a `select!`.
    #[tokio::test]
    async fn work_goes_on_while_answers_come_and_ends_when_none_comes() {
        let millis = Duration::from_millis;
        let busy = async {
            loop {
                sleep(millis(5)).await;
            }
        };
        let answers = |last: u64| async move {
            for _ in 0..last {
                sleep(millis(50)).await;
            }
            if last < 10 {
                pending::<()>().await;
            }
        };
        let tried = async {
            let whole = pin!(answers(10));
            let whole = answers_within(millis(20), millis(300), whole).await;
            assert_eq!(whole, Some(()), "500 ms, and never 300 without an answer");
            let silent = pin!(answers(1));
            answers_within(millis(20), millis(300), silent).await
        };
        let Either::Left((ended, _)) = select(pin!(tried), pin!(busy)).await;
        assert_eq!(ended, None);
    }

    /// Beside work of the same task that uses up its budget in each poll.
    #[tokio::test]
    async fn used_up_budget_is_no_answer() {
        let busy = async {
            loop {
                consume_budget().await;
            }
        };
        let tried = async {
            let (_sender, receiver) = oneshot::channel::<()>();
            let millis = Duration::from_millis;
            answers_within(millis(20), millis(20), pin!(receiver)).await
        };
        let (busy, tried) = (pin!(busy), pin!(tried));
        let ended = timeout(Duration::from_secs(10), select(busy, tried)).await;
        let Either::Right((ended, _)) = ended.expect("it ends");
        assert_eq!(ended, None);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_takes_its_time_where_the_clock_of_the_runtime_is_paused() {
        let started = time::Instant::now();
        let hour = Duration::from_secs(3600);
        let (polls, ()) = tokio::join!(polls_until(started, &[50, 200]), sleep(hour));
        assert!(started.elapsed() >= Duration::from_millis(200));
        assert!(polls <= 20, "{polls} for 2 times");
    }
}
