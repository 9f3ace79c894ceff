//! Counts what is running, so that a shutdown can wait until it has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Calls, guards and transactions that are running. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<Shared>);

#[derive(Default)]
struct Shared {
    counts: Mutex<Counts>,
    idle: Condvar,
}

/// How many are running, and how many have ever begun.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) running: usize,
    begun: u64,
}

/// One of them, until it is dropped.
#[must_use]
pub(crate) struct Active(Activity);

impl Activity {
    pub(crate) fn begin(&self) -> Active {
        let mut counts = self.0.lock();
        counts.running += 1;
        counts.begun = counts.begun.wrapping_add(1);
        drop(counts);
        Active(self.clone())
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.0.lock()
    }

    /// Whether the other one is a clone of this one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits until nothing is running, or until `end`.
    fn await_idle(&self, end: Instant) {
        let limit = end.saturating_duration_since(Instant::now());
        let counts = self.0.lock();
        let waited = self
            .0
            .idle
            .wait_timeout_while(counts, limit, |counts| counts.running > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Waits until nothing of all these is running at the same time, or until `end`. Returns how many of each are still running.
pub(crate) fn await_all_idle(all: &[Activity], end: Instant) -> Vec<usize> {
    await_each_idle(all, end, |_| ())
}

/// [`await_all_idle`], which calls `before` before it waits for each of them.
fn await_each_idle(
    all: &[Activity],
    end: Instant,
    mut before: impl FnMut(&Activity),
) -> Vec<usize> {
    let counts = || -> Vec<Counts> { all.iter().map(Activity::counts).collect() };
    loop {
        for activity in all {
            before(activity);
            activity.await_idle(end);
        }
        let seen = counts();
        // What has ended may have begun another one meanwhile. Without that, all were idle between the two looks.
        let idle = seen.iter().all(|counts| counts.running == 0) && counts() == seen;
        if idle || Instant::now() >= end {
            return seen.iter().map(|counts| counts.running).collect();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock();
        counts.running -= 1;
        if counts.running == 0 {
            self.0.0.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Activity, await_all_idle, await_each_idle};

    #[test]
    fn waits_until_all_have_ended() {
        let activity = Activity::default();
        let end = Instant::now() + Duration::from_secs(60);
        let await_idle =
            |activity: &Activity, end| await_all_idle(std::slice::from_ref(activity), end)[0];
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
        let running = await_each_idle(&all, end, |_| {
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
        });
        assert_eq!(running, [0, 0]);
        assert_eq!(looks, 4);
        drop((first, second));
    }
}
