//! Medians, and how far they may be from the truth.

use std::time::Duration;

/// Measurements of one quantity in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

/// A figure made of samples, and the least and greatest that a fifth of the samples alone would give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

const PARTS: usize = 5;

impl Figure {
    /// One that was measured once.
    pub(crate) fn single(value: f64) -> Self {
        Self {
            value,
            least: value,
            greatest: value,
        }
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// In milliseconds.
    pub(crate) fn push_time(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1e3);
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// What this percentage of the samples does not exceed; `None` without samples.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        Some(self.sorted()[last * percent / 100])
    }

    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        }
    }

    /// In the order of time; fewer than five when there are fewer samples.
    pub(crate) fn fifths(&self) -> Vec<Self> {
        let size = self.0.len().div_ceil(PARTS).max(1);
        self.0
            .chunks(size)
            .map(|part| Self(part.to_vec()))
            .collect()
    }
}

/// `of`, computed from all samples and from each fifth of the time. All have the same number of samples.
pub(crate) fn figure<const N: usize>(
    samples: [&Samples; N],
    of: impl Fn([&Samples; N]) -> f64,
) -> Figure {
    let fifths = samples.map(Samples::fifths);
    let parts: Vec<f64> = (0..fifths[0].len())
        .map(|part| of(fifths.each_ref().map(|fifths| &fifths[part])))
        .collect();
    Figure {
        value: of(samples),
        least: parts.iter().copied().fold(f64::INFINITY, f64::min),
        greatest: parts.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

/// Each round begins with another variant, and every second one goes backwards: what a variant leaves to
/// be done behind it (a flush, a vacuum) does not always fall into the time of one other variant.
pub(crate) fn order(variants: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..variants).map(move |step| {
        let step = if round.is_multiple_of(2) {
            step
        } else {
            variants - 1 - step
        };
        (round / 2 + step) % variants
    })
}
