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
