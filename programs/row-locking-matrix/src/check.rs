//! Checks that every number was assigned once.

use std::collections::BTreeSet;

/// The result for the numbers 1 to `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Numbers from 1 to `n` that are missing.
    pub(crate) lost: usize,
    /// Surplus numbers: a number that is there three times counts as two.
    pub(crate) repeated: usize,
    /// Whether all numbers and the counter are right.
    pub(crate) right: bool,
}

/// `drawn`: all numbers in the table. `end`: the final value of the counter.
pub(crate) fn check(n: i64, drawn: &[i64], end: i64) -> Check {
    let distinct: BTreeSet<i64> = drawn.iter().copied().collect();
    let lost = (1..=n).filter(|number| !distinct.contains(number)).count();
    let repeated = drawn.len() - distinct.len();
    let foreign = distinct.first().is_some_and(|&first| first < 1)
        || distinct.last().is_some_and(|&last| last > n);
    Check {
        lost,
        repeated,
        right: lost == 0 && repeated == 0 && !foreign && end == n,
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn every_number_once() {
        assert!(check(3, &[2, 3, 1], 3).right);
    }

    #[test]
    fn lost_and_repeated_numbers_are_counted() {
        let found = check(5, &[1, 2, 2, 2, 3], 3);
        assert_eq!((found.lost, found.repeated, found.right), (2, 2, false));
    }

    #[test]
    fn a_wrong_end_and_foreign_numbers_are_wrong() {
        assert!(!check(2, &[1, 2], 3).right);
        assert!(!check(2, &[1, 2, 7], 2).right);
        assert!(!check(1, &[0, 1], 1).right);
    }
}
