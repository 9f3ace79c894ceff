//! Stretches of time.

use std::time::Duration;

use torture_history::Moment;

/// Stretches of time, in order, none touching another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(Vec<(Moment, Moment)>);

impl Spans {
    /// The time that is covered by any of these.
    pub(crate) fn covering(spans: impl IntoIterator<Item = (Moment, Moment)>) -> Self {
        let mut spans: Vec<_> = spans.into_iter().collect();
        spans.sort_unstable();
        let mut merged: Vec<(Moment, Moment)> = Vec::new();
        for (from, until) in spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => merged.push((from, until)),
            }
        }
        Self(merged)
    }

    /// Those that touch a stretch.
    fn touching(&self, from: Moment, until: Moment) -> &[(Moment, Moment)] {
        let first = self.0.partition_point(|span| span.1 < from);
        let after = self.0.partition_point(|span| span.0 <= until);
        self.0.get(first..after).unwrap_or_default()
    }

    /// Whether any of a stretch is covered.
    pub(crate) fn touch(&self, from: Moment, until: Moment) -> bool {
        !self.touching(from, until).is_empty()
    }

    /// How much of a stretch is covered.
    pub(crate) fn within(&self, from: Moment, until: Moment) -> Duration {
        self.touching(from, until)
            .iter()
            .map(|span| span.1.min(until).since(span.0.max(from)))
            .sum()
    }
}
