//! Chance, from the run's seed.

use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// Chance, from the run's seed.
pub(super) struct NemesisRng(StdRng);

impl NemesisRng {
    pub(super) fn new(seed: u64, lane: u64) -> Self {
        Self(StdRng::seed_from_u64(seed.rotate_left(32) ^ lane))
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        items.shuffle(&mut self.0);
    }

    /// A number of milliseconds.
    pub(super) fn time(&mut self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.0.random_range(milliseconds))
    }

    pub(super) fn number(&mut self, numbers: Range<usize>) -> usize {
        self.0.random_range(numbers)
    }

    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }
}
