//! Waits that block the thread.

#[cfg(feature = "_pool")]
use std::io;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use super::{Event, Polled, Timer};
#[cfg(feature = "_pool")]
use crate::poll::poll_once;
use crate::poll::thread_waker::thread_waker;

/// For connections that block.
pub enum ThreadTimer {}

impl Timer for ThreadTimer {
    const MAY_STALL: bool = false;

    async fn pause(time: Duration) {
        thread::sleep(time);
    }

    async fn wait<E: Event>(mut event: E) -> E::Value {
        let waker = THIS_THREAD
            .try_with(Waker::clone)
            .unwrap_or_else(|_| thread_waker());
        loop {
            match event.poll(&waker) {
                Polled::Ready(value) => return value,
                Polled::Pending { until: None } => thread::park(),
                Polled::Pending { until: Some(time) } => {
                    thread::park_timeout(time.saturating_duration_since(Instant::now()));
                }
            }
        }
    }

    #[cfg(feature = "_pool")]
    fn spawn(name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || poll_once(work)).map(drop)
    }
}

thread_local! {
    static THIS_THREAD: Waker = thread_waker();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::poll::poll_once;

    /// Ready when the flag is set. Sends its waker to the test at each poll.
    struct Flag<'a> {
        set: &'a Mutex<bool>,
        polls: Sender<Waker>,
    }

    impl Event for Flag<'_> {
        type Value = ();

        fn poll(&mut self, waker: &Waker) -> Polled<()> {
            let set = *self.set.lock().expect("no panic");
            let _ = self.polls.send(waker.clone());
            if set {
                Polled::Ready(())
            } else {
                Polled::Pending { until: None }
            }
        }
    }

    #[test]
    fn thread_waits_until_it_is_woken_and_the_event_has_come() {
        let set = Mutex::new(false);
        let (sender, polls) = channel();
        thread::scope(|scope| {
            let flag = Flag {
                set: &set,
                polls: sender,
            };
            let waiter = scope.spawn(|| poll_once(ThreadTimer::wait(flag)));
            // Woken without the event, it waits on.
            polls.recv().expect("a first poll").wake();
            let waker = polls.recv().expect("a second poll");
            assert!(!waiter.is_finished());
            *set.lock().expect("no panic") = true;
            waker.wake();
            waiter.join().expect("no panic");
        });
        // The thread may also wake for no reason, but it does not poll without a wake again and again.
        assert!(polls.iter().count() < 10);
    }

    /// Ready at a time.
    struct At(Instant);

    impl Event for At {
        type Value = Instant;

        fn poll(&mut self, _: &Waker) -> Polled<Instant> {
            let now = Instant::now();
            if now >= self.0 {
                Polled::Ready(now)
            } else {
                Polled::Pending {
                    until: Some(self.0),
                }
            }
        }
    }

    #[test]
    fn thread_waits_until_the_time_of_the_event() {
        let time = Instant::now() + Duration::from_millis(20);
        assert!(poll_once(ThreadTimer::wait(At(time))) >= time);
    }
}
