//! Counts what is running, so that a shutdown can wait until it has ended.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use crate::rt::{self, Polled, lock};

/// Calls, guards and transactions that are running. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    counts: Counts,
    /// Woken when nothing is running.
    waiters: Vec<Waker>,
}

/// How many are running, and how many have ever begun.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) running: usize,
    begun: u64,
}

#[must_use]
pub(crate) struct Active(Activity);

impl Activity {
    pub(crate) fn begin(&self) -> Active {
        let counts = &mut lock(&self.0).counts;
        counts.running += 1;
        counts.begun = counts.begun.wrapping_add(1);
        Active(self.clone())
    }

    pub(crate) fn counts(&self) -> Counts {
        lock(&self.0).counts
    }

    /// Whether this is the only clone, so that nothing else begins with it any more.
    pub(crate) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits until nothing is running, or until `end`.
    async fn await_idle(&self, end: Instant) {
        rt::wait(|waker| {
            let mut inner = lock(&self.0);
            if inner.counts.running == 0 || Instant::now() >= end {
                return Polled::Ready(());
            }
            if !inner.waiters.iter().any(|known| known.will_wake(waker)) {
                inner.waiters.push(waker.clone());
            }
            Polled::Pending { until: Some(end) }
        })
        .await;
    }
}

/// Waits until nothing of all these is running at the same time, or until `end`. Returns how many of each are still running.
pub(crate) async fn await_all_idle(all: &[Activity], end: Instant) -> Vec<usize> {
    let counts = || -> Vec<Counts> { all.iter().map(Activity::counts).collect() };
    loop {
        for activity in all {
            activity.await_idle(end).await;
        }
        let seen = counts();
        // What has ended may have begun another one meanwhile. Without that, all were idle between the two looks.
        let idle = seen.iter().all(|counts| counts.running == 0) && counts() == seen;
        if idle || Instant::now() >= end {
            return seen.iter().map(|counts| counts.running).collect();
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.0);
        inner.counts.running -= 1;
        let waiters = if inner.counts.running == 0 {
            std::mem::take(&mut inner.waiters)
        } else {
            Vec::new()
        };
        drop(inner);
        for waiter in waiters {
            waiter.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::rt::block_on;

    /// One that ends begins another one, which the waiter has looked at before.
    #[test]
    fn waits_until_all_are_idle_at_the_same_time() {
        let all = [Activity::default(), Activity::default()];
        let end = Instant::now() + Duration::from_secs(60);
        let second = all[1].begin();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(await_all_idle(&all, end)));
            let waits_for = |activity: &Activity| {
                while lock(&activity.0).waiters.is_empty() {
                    assert!(!waiter.is_finished(), "it does not wait");
                    thread::yield_now();
                }
            };
            waits_for(&all[1]);
            let first = all[0].begin();
            drop(second);
            waits_for(&all[0]);
            drop(first);
            assert_eq!(waiter.join().expect("no panic"), [0, 0]);
        });
    }
}
