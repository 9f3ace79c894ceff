//! Waits of a task of tokio, beside which others run.

use std::future::poll_fn;
#[cfg(feature = "_pool")]
use std::io;
use std::pin::pin;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use futures_util::future::{Either, select};
#[cfg(feature = "_pool")]
use tokio::runtime::Handle;
#[cfg(feature = "_async_pool")]
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{Event, Polled, Timer};
#[cfg(feature = "_pool")]
use crate::runtime;

/// For asynchronous connections. Panics outside a runtime of tokio, and in one without timers.
#[cfg_attr(
    not(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )),
    allow(unreachable_pub, reason = "it is the timer of no connection")
)]
pub enum TaskTimer {}

impl Timer for TaskTimer {
    const MAY_STALL: bool = true;

    async fn pause(time: Duration) {
        sleep(time).await;
    }

    async fn wait<E: Event>(mut event: E) -> E::Value {
        let mut timer = pin!(None::<Sleep>);
        #[cfg(feature = "_async_pool")]
        let mut apart = None::<(Instant, oneshot::Receiver<()>)>;
        poll_fn(|context| {
            loop {
                let time = match event.poll(context.waker()) {
                    Polled::Ready(value) => return Poll::Ready(value),
                    Polled::Pending { until: None } => return Poll::Pending,
                    Polled::Pending { until: Some(time) } => Instant::from_std(time),
                };
                #[cfg(feature = "_async_pool")]
                if let Some((until, ended)) = &mut apart
                    && *until == time
                {
                    // Nothing is sent: the sender is dropped when the time has come.
                    let _ended = ready!(pin!(ended).poll(context));
                    apart = None;
                    continue;
                }
                match timer.as_mut().as_pin_mut() {
                    None => timer.set(Some(sleep_until(time))),
                    Some(timer) if timer.deadline() == time => {}
                    Some(timer) => timer.reset(time),
                }
                let timer = timer.as_mut().as_pin_mut().expect("a timer that is set");
                ready!(timer.poll(context));
                #[cfg(feature = "_async_pool")]
                if time.into_std() > std::time::Instant::now() {
                    apart = Some((time, sleep_apart(time)));
                }
            }
        })
        .await
    }

    async fn answer_within<T: Send>(
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        // By the system's clock: a test may pause tokio's.
        let end = Until(std::time::Instant::now() + limit);
        match select(pin!(work), pin!(Self::wait(end))).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    #[cfg(feature = "_pool")]
    fn spawn(name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(work);
                Ok(())
            }
            // A destructor, on any thread.
            Err(_) => Self::spawn_apart(name, work),
        }
    }

    #[cfg(feature = "_pool")]
    fn spawn_apart(_: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        runtime::spawn(work);
        Ok(())
    }
}

/// A time of the system's clock.
struct Until(std::time::Instant);

impl Event for Until {
    type Value = ();

    fn poll(&mut self, _: &Waker) -> Polled<()> {
        if std::time::Instant::now() >= self.0 {
            Polled::Ready(())
        } else {
            Polled::Pending {
                until: Some(self.0),
            }
        }
    }
}

/// Sleeps until a time of the system's clock. A test may pause tokio's, so that its timers end at once: without this, the wait
/// would poll its event without a pause until that time.
#[cfg(feature = "_async_pool")]
fn sleep_apart(time: Instant) -> oneshot::Receiver<()> {
    let (mut sleeps, ended) = oneshot::channel();
    runtime::spawn(async move {
        let sleep = pin!(sleep_until(time));
        select(sleep, pin!(sleeps.closed())).await;
    });
    ended
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;
    use std::time;

    use super::*;
    use crate::queue::{Queues, Turn};

    /// Ready at the last of these times, of which it returns one after the other. Returns how often it was polled.
    struct At {
        times: Vec<time::Instant>,
        polls: usize,
    }

    impl Event for At {
        type Value = usize;

        fn poll(&mut self, _: &Waker) -> Polled<usize> {
            self.polls += 1;
            let now = time::Instant::now();
            self.times.retain(|time| *time > now);
            match self.times.first() {
                None => Polled::Ready(self.polls),
                Some(time) => Polled::Pending { until: Some(*time) },
            }
        }
    }

    #[tokio::test]
    async fn task_waits_until_the_time_of_the_event_also_when_that_changes() {
        let started = time::Instant::now();
        let times = [3, 20, 40].map(|millis| started + Duration::from_millis(millis));
        let event = At {
            times: times.into(),
            polls: 0,
        };
        let polls = TaskTimer::wait(event).await;
        assert!(started.elapsed() >= Duration::from_millis(40));
        assert!(polls <= 4, "{polls} for 3 times");
    }

    #[cfg(feature = "_async_pool")]
    #[tokio::test(start_paused = true)]
    async fn wait_takes_its_time_where_the_clock_of_the_runtime_is_paused() {
        let started = time::Instant::now();
        let times = [50, 200].map(|millis| started + Duration::from_millis(millis));
        let event = At {
            times: times.into(),
            polls: 0,
        };
        let hour = Duration::from_secs(3600);
        let (polls, ()) = tokio::join!(TaskTimer::wait(event), sleep(hour));
        assert!(started.elapsed() >= Duration::from_millis(200));
        assert!(polls <= 20, "{polls} for 2 times");
    }

    #[tokio::test]
    async fn waiters_of_a_queue_are_tasks_of_one_thread() {
        const WAITERS: usize = 1000;
        let queues: &Queues<&str, u8> = Box::leak(Box::new(Queues::new()));
        let mut first = queues.join("slots", 1, |_| true);
        first.turn::<TaskTimer>(None).await;
        first.set_target(Some(0));
        let served: &AtomicUsize = Box::leak(Box::default());
        let tasks = (0..WAITERS).map(|_| async {
            let mut ticket = queues.join("slots", 1, |_| true);
            while ticket.turn::<TaskTimer>(None).await == Turn::Identify {
                ticket.set_target(Some(0));
            }
            served.fetch_add(1, Ordering::SeqCst);
            ticket.finish();
            queues.notify_released("slots", 1, None);
        });
        let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
        tokio::task::yield_now().await;
        first.finish();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(served.load(Ordering::SeqCst), WAITERS);
    }
}
