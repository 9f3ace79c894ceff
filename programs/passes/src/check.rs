//! Checks that the passes of a meeting are numbered from 1, each number once.
//!
//! It knows nothing but the numbers in the table: no sequence, no lock, and not what workers report.

use std::collections::BTreeSet;

/// The errors in the numbers of one meeting, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckResult {
    /// Rows in the table.
    pub(crate) passes: usize,
    /// Missing numbers below the largest.
    pub(crate) gaps: usize,
    /// Passes with a number that another pass has too, without the first of each number.
    pub(crate) repeats: usize,
}

impl CheckResult {
    /// Checks the numbers of all passes of a meeting, in any order.
    pub(crate) fn of(numbers: &[i64]) -> Self {
        let different: BTreeSet<i64> = numbers.iter().copied().collect();
        let mut gaps = 0;
        let mut expected = 1;
        for &number in &different {
            // A number below 1, which no pass may have, is also an error.
            gaps += usize::try_from(number.abs_diff(expected)).unwrap_or(usize::MAX);
            expected = number + 1;
        }
        Self {
            passes: numbers.len(),
            gaps,
            repeats: numbers.len() - different.len(),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passes += other.passes;
        self.gaps += other.gaps;
        self.repeats += other.repeats;
    }
}

#[cfg(test)]
mod tests {
    use super::CheckResult;

    fn gaps_and_repeats(numbers: &[i64]) -> (usize, usize) {
        let verdict = CheckResult::of(numbers);
        assert_eq!(verdict.passes, numbers.len());
        (verdict.gaps, verdict.repeats)
    }

    #[test]
    fn one_to_n_in_any_order_is_right() {
        assert_eq!(gaps_and_repeats(&[]), (0, 0));
        assert_eq!(gaps_and_repeats(&[3, 1, 4, 2]), (0, 0));
    }

    #[test]
    fn finds_numbers_that_are_missing() {
        assert_eq!(gaps_and_repeats(&[2, 3]), (1, 0));
        assert_eq!(gaps_and_repeats(&[1, 5, 2]), (2, 0));
        assert_ne!(gaps_and_repeats(&[0, 1]), (0, 0));
    }

    #[test]
    fn finds_numbers_that_are_there_again() {
        assert_eq!(gaps_and_repeats(&[1, 2, 2, 2, 3]), (0, 2));
        assert_eq!(gaps_and_repeats(&[2, 2]), (1, 1));
    }
}
