//! Durations, of which the median and the slowest matter.

use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time, in milliseconds, that this percentage of the samples does not exceed; `None` without samples.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        Some(sorted[last * percent / 100].as_secs_f64() * 1000.0)
    }

    pub(crate) fn median_ms(&self) -> Option<f64> {
        self.percentile(50)
    }

    pub(crate) fn p95_ms(&self) -> Option<f64> {
        self.percentile(95)
    }
}

/// For a cell of a table.
pub(crate) fn cell(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number < 10.0 => format!("{number:.1}"),
        Some(number) => format!("{number:.0}"),
    }
}
