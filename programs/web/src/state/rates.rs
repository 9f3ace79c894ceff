//! Requests per second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::snapshot::Rates;
use super::waits::Waits;
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Totals, Waits, Window};

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
}
