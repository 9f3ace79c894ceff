//! Counts what is running, so that a shutdown can wait until it has ended.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use crate::rt;
use crate::rt::{Event, Polled, lock};

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
}

struct IdleOrEnd<'a> {
    activity: &'a Activity,
    end: Instant,
}

impl Event for IdleOrEnd<'_> {
    type Value = ();

    fn poll(&mut self, waker: &Waker) -> Polled<()> {
        let mut inner = lock(&self.activity.0);
        if inner.counts.running == 0 || Instant::now() >= self.end {
            return Polled::Ready(());
        }
        if !inner.waiters.iter().any(|known| known.will_wake(waker)) {
            inner.waiters.push(waker.clone());
        }
        Polled::Pending {
            until: Some(self.end),
        }
    }
}

/// Waits until nothing of all these is running at the same time, or until `end`. Returns how many of each are still running.
pub(crate) async fn await_all_idle(all: &[Activity], end: Instant) -> Vec<usize> {
    await_each_idle(all, end, |_| ()).await
}

/// [`await_all_idle`], which calls `before` before it waits for each of them.
async fn await_each_idle(
    all: &[Activity],
    end: Instant,
    mut before: impl FnMut(&Activity) + Send,
) -> Vec<usize> {
    let counts = || -> Vec<Counts> { all.iter().map(Activity::counts).collect() };
    loop {
        for activity in all {
            before(activity);
            rt::wait(IdleOrEnd { activity, end }).await;
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
    use std::time::{Duration, Instant};

    use super::{Activity, await_all_idle, await_each_idle};
    use crate::rt::block_on;

    #[test]
    fn waits_until_all_have_ended() {
        let activity = Activity::default();
        let end = Instant::now() + Duration::from_secs(60);
        let await_idle = |activity: &Activity, end| {
            let all = std::slice::from_ref(activity);
            block_on(await_all_idle(all, end))[0]
        };
        assert_eq!(await_idle(&activity, end), 0);
        let (first, second) = (activity.begin(), activity.clone().begin());
        assert_eq!(await_idle(&activity, Instant::now()), 2);
        drop(first);
        assert_eq!(await_idle(&activity, Instant::now()), 1);
        let waiter = thread::spawn(move || await_idle(&activity, end));
        drop(second);
        assert_eq!(waiter.join().expect("no panic"), 0);
        assert!(Instant::now() < end);
    }

    /// One that ends begins another one, which the waiter has looked at before.
    #[test]
    fn waits_until_all_are_idle_at_the_same_time() {
        let all = [Activity::default(), Activity::default()];
        let (mut first, mut second) = (None, Some(all[1].begin()));
        let end = Instant::now() + Duration::from_secs(60);
        let mut looks = 0;
        let running = block_on(await_each_idle(&all, end, |_| {
            looks += 1;
            match looks {
                // It has found the first one idle, and is about to wait for the second one.
                2 => {
                    first = Some(all[0].begin());
                    second = None;
                }
                3 => first = None,
                _ => {}
            }
        }));
        assert_eq!(running, [0, 0]);
        assert_eq!(looks, 4);
        drop((first, second));
    }
}
