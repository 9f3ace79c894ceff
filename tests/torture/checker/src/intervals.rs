//! Stretches of time.

use std::time::Duration;

use torture_history::Moment;

/// Stretches of time, in order, none overlapping another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals(Vec<(Moment, Moment)>);

impl Intervals {
    /// The time that is covered by any of these.
    pub(crate) fn covering(intervals: impl IntoIterator<Item = (Moment, Moment)>) -> Self {
        let mut intervals: Vec<_> = intervals.into_iter().collect();
        intervals.sort_unstable();
        let mut merged: Vec<(Moment, Moment)> = Vec::new();
        for (from, until) in intervals {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => merged.push((from, until)),
            }
        }
        Self(merged)
    }

    /// Those that touch a stretch.
    fn overlapping(&self, from: Moment, until: Moment) -> &[(Moment, Moment)] {
        let first = self.0.partition_point(|interval| interval.1 < from);
        let after = self.0.partition_point(|interval| interval.0 <= until);
        self.0.get(first..after).unwrap_or_default()
    }

    /// Whether any of a stretch is covered.
    pub(crate) fn overlaps(&self, from: Moment, until: Moment) -> bool {
        !self.overlapping(from, until).is_empty()
    }

    /// How much of a stretch is covered.
    pub(crate) fn within(&self, from: Moment, until: Moment) -> Duration {
        self.overlapping(from, until)
            .iter()
            .map(|interval| interval.1.min(until).since(interval.0.max(from)))
            .sum()
    }
}
