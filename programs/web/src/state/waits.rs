//! How long requests wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long the longest wait that has ended counts.
const MEMORY: Duration = Duration::from_secs(10);

/// The waits of this process.
#[derive(Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    next: u64,
    /// The starts of the waits that run, in their order.
    running: BTreeMap<u64, Instant>,
    /// When waits ended, and how long they took; only those that no later one exceeds.
    ended: VecDeque<(Instant, Duration)>,
}

impl Waits {
    /// Begins a wait, which ends when the value is dropped.
    pub(crate) fn begin(&self) -> Wait {
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.running.insert(number, Instant::now());
        Wait {
            waits: self.clone(),
            number,
        }
    }

    /// How many waits run.
    pub(crate) fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// The longest wait that runs or has ended within the last 10 s.
    pub(crate) fn longest(&self) -> Duration {
        let mut inner = self.lock();
        while inner
            .ended
            .front()
            .is_some_and(|(at, _)| at.elapsed() > MEMORY)
        {
            inner.ended.pop_front();
        }
        let running = inner.running.values().next().map(Instant::elapsed);
        let ended = inner.ended.front().map(|(_, waited)| *waited);
        running.max(ended).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait that runs.
pub(crate) struct Wait {
    waits: Waits,
    number: u64,
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut inner = self.waits.lock();
        let Some(started) = inner.running.remove(&self.number) else {
            return;
        };
        let waited = started.elapsed();
        while inner
            .ended
            .back()
            .is_some_and(|(_, earlier)| *earlier <= waited)
        {
            inner.ended.pop_back();
        }
        inner.ended.push_back((Instant::now(), waited));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Waits;

    #[test]
    fn longest_is_that_of_the_first_that_runs_or_has_ended() {
        let waits = Waits::default();
        assert_eq!(waits.longest(), Duration::ZERO);
        let first = waits.begin();
        let second = waits.begin();
        assert_eq!(waits.running(), 2);
        drop(first);
        let ended = waits.longest();
        drop(second);
        assert_eq!(waits.running(), 0);
        assert!(ended > Duration::ZERO && waits.longest() >= ended / 2);
    }
}
