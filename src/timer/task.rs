//! Waits of a task of tokio, beside which others run.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{Event, Polled, Timer};

/// For asynchronous connections. Panics outside a runtime of tokio, and in one without timers.
pub enum TaskTimer {}

impl Timer for TaskTimer {
    const MAY_STALL: bool = true;

    async fn pause(time: Duration) {
        sleep(time).await;
    }

    async fn wait<E: Event>(mut event: E) -> E::Value {
        let mut timer = pin!(None::<Sleep>);
        poll_fn(|context| {
            loop {
                let time = match event.poll(context.waker()) {
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
            }
        })
        .await
    }
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
