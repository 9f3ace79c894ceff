//! What is running: requests, which are listed, guards, and what dropped futures have left. A shutdown waits until it has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use crate::rt::{self, Polled, lock};
use crate::values::request_info::{RequestInfo, RequestSubject};

/// Requests, guards and transactions that are running. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    counts: Counts,
    /// Those that are listed, in the order in which they have begun.
    requests: BTreeMap<u64, Request>,
    /// Woken when nothing is running.
    waiters: Vec<Waker>,
}

/// How many are running, and how many have ever begun.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) running: usize,
    begun: u64,
}

#[derive(Clone)]
struct Request {
    subject: RequestSubject,
    made: Instant,
    granted: Option<Instant>,
}

#[must_use]
pub(crate) struct Active {
    activity: Activity,
    number: u64,
}

impl Activity {
    /// Begins a request, which waits, or what is not listed.
    pub(crate) fn begin(&self, request: Option<RequestSubject>) -> Active {
        let inner = &mut *lock(&self.0);
        inner.counts.running += 1;
        inner.counts.begun += 1;
        let number = inner.counts.begun;
        if let Some(subject) = request {
            // With the lock: in the order of the numbers.
            let (made, granted) = (Instant::now(), None);
            let request = Request {
                subject,
                made,
                granted,
            };
            inner.requests.insert(number, request);
        }
        let activity = self.clone();
        Active { activity, number }
    }

    /// The requests, the oldest first.
    pub(crate) fn requests(&self) -> Vec<RequestInfo> {
        let requests: Vec<_> = lock(&self.0).requests.values().cloned().collect();
        let now = Instant::now();
        let info = |request: Request| RequestInfo {
            subject: request.subject,
            age: now - request.made,
            inside_for: request.granted.map(|granted| now - granted),
        };
        requests.into_iter().map(info).collect()
    }

    /// How many requests are not granted.
    pub(crate) fn waiting(&self) -> usize {
        let inner = lock(&self.0);
        let requests = inner.requests.values();
        requests.filter(|it| it.granted.is_none()).count()
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

impl Active {
    /// The request is granted, or waits again for its next attempt.
    pub(crate) fn set_inside(&self, is_inside: bool) {
        let granted = is_inside.then(Instant::now);
        if let Some(request) = lock(&self.activity.0).requests.get_mut(&self.number) {
            request.granted = granted;
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut inner = lock(&self.activity.0);
        inner.counts.running -= 1;
        // Dropped without the lock.
        let _request = inner.requests.remove(&self.number);
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
        let second = all[1].begin(None);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(await_all_idle(&all, end)));
            let waits_for = |activity: &Activity| {
                while lock(&activity.0).waiters.is_empty() {
                    assert!(!waiter.is_finished(), "it does not wait");
                    thread::yield_now();
                }
            };
            waits_for(&all[1]);
            let first = all[0].begin(None);
            drop(second);
            waits_for(&all[0]);
            drop(first);
            assert_eq!(waiter.join().expect("no panic"), [0, 0]);
        });
    }
}
