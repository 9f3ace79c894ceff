//! Requests per second, and how long they wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::snapshot::Rates;
use crate::metrics::Totals;

/// The time over which rates are measured.
const WINDOW: Duration = Duration::from_secs(5);

/// The totals of the last seconds.
#[derive(Default)]
pub(super) struct Window(VecDeque<(Instant, Totals)>);

impl Window {
    /// Adds the totals of this moment, and returns the rates since the oldest ones.
    pub(super) fn add(&mut self, now: Instant, totals: Totals, waits: &Waits) -> Rates {
        self.0.push_back((now, totals));
        while self.0.len() > 2 && now.duration_since(self.0[0].0) > WINDOW {
            self.0.pop_front();
        }
        let (since, oldest) = self.0[0];
        let seconds = now.duration_since(since).as_secs_f64();
        let rate = |of: fn(&Totals) -> u64| per_second(of(&totals) - of(&oldest), seconds);
        Rates {
            waiting: waits.running(),
            attempts_per_s: rate(|totals| totals.attempts),
            granted_per_s: rate(|totals| totals.granted),
            refused_per_s: rate(|totals| totals.refused),
            timed_out_per_s: rate(|totals| totals.timed_out),
            longest_wait_ms: u64::try_from(waits.longest().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// To one decimal.
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        (count as f64 / seconds * 10.0).round() / 10.0
    } else {
        0.0
    }
}

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
    use super::*;

    #[test]
    fn rates_are_those_of_the_window() {
        let start = Instant::now();
        let mut window = Window::default();
        let waits = Waits::default();
        let mut at = |seconds, attempts| {
            let totals = Totals {
                attempts,
                ..Totals::default()
            };
            let now = start + Duration::from_secs(seconds);
            window.add(now, totals, &waits).attempts_per_s
        };
        let rates = [at(0, 7), at(2, 10), at(5, 22), at(9, 22), at(12, 22)];
        let expected = [0.0, 1.5, 3.0, 0.0, 0.0];
        assert!(
            rates
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 0.01),
            "{rates:?}"
        );
    }

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
