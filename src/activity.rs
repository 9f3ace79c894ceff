//! Counts what is running, so that a shutdown can wait until it has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Calls, guards and transactions that are running. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<Shared>);

#[derive(Default)]
struct Shared {
    running: Mutex<usize>,
    idle: Condvar,
}

/// One of them, until it is dropped.
#[must_use]
pub(crate) struct Active(Activity);

impl Activity {
    pub(crate) fn begin(&self) -> Active {
        *self.0.lock() += 1;
        Active(self.clone())
    }

    /// Waits until nothing is running, or until `end`. Returns how many are still running.
    pub(crate) fn await_idle(&self, end: Instant) -> usize {
        let limit = end.saturating_duration_since(Instant::now());
        let running = self.0.lock();
        let waited = self
            .0
            .idle
            .wait_timeout_while(running, limit, |running| *running > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut running = self.0.0.lock();
        *running -= 1;
        if *running == 0 {
            self.0.0.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::Activity;

    #[test]
    fn waits_until_all_have_ended() {
        let activity = Activity::default();
        let end = Instant::now() + Duration::from_secs(60);
        assert_eq!(activity.await_idle(end), 0);
        let (first, second) = (activity.begin(), activity.clone().begin());
        assert_eq!(activity.await_idle(Instant::now()), 2);
        drop(first);
        assert_eq!(activity.await_idle(Instant::now()), 1);
        let waiter = thread::spawn(move || activity.await_idle(end));
        drop(second);
        assert_eq!(waiter.join().expect("no panic"), 0);
        assert!(Instant::now() < end);
    }
}
