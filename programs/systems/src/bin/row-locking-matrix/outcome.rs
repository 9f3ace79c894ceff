//! The results: a check that every number was assigned once, and what a run must not have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use diesel_locks::IsolationLevel;

use crate::strategy::Strategy;

/// The numbers of refused transactions, by reason.
pub(crate) type Refusals = BTreeMap<&'static str, u64>;

/// The result of a strategy at a level on an engine.
pub(crate) struct Cell {
    pub(crate) check: Check,
    /// The transactions were retried.
    pub(crate) refusals: Refusals,
    pub(crate) micros_per_number: f64,
}

/// The result for the numbers 1 to `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Numbers from 1 to `n` that are missing.
    lost: usize,
    /// Surplus numbers: a number that is there three times counts as two.
    repeated: usize,
    /// Whether all numbers and the counter are right.
    right: bool,
}

impl Check {
    /// `drawn`: all numbers in the table. `end`: the final value of the counter.
    pub(crate) fn of(n: i64, drawn: &[i64], end: i64) -> Self {
        let distinct: BTreeSet<i64> = drawn.iter().copied().collect();
        let lost = (1..=n).filter(|number| !distinct.contains(number)).count();
        let repeated = drawn.len() - distinct.len();
        let foreign = distinct.first().is_some_and(|&first| first < 1)
            || distinct.last().is_some_and(|&last| last > n);
        Self {
            lost,
            repeated,
            right: lost == 0 && repeated == 0 && !foreign && end == n,
        }
    }
}

/// Why the result must not be so.
pub(crate) fn violation(
    isolation: IsolationLevel,
    strategy: Strategy,
    cell: &Cell,
) -> Option<&'static str> {
    let is_serializable = isolation == IsolationLevel::Serializable;
    if !cell.check.right && (!strategy.reads_plainly() || is_serializable) {
        return Some("numbers were lost or repeated, which must not be");
    }
    // At REPEATABLE READ, engines differ.
    let conflicts = match isolation {
        IsolationLevel::ReadCommitted => !cell.check.right,
        IsolationLevel::Serializable => !cell.refusals.is_empty(),
        IsolationLevel::RepeatableRead => true,
    };
    (strategy == Strategy::Plain && !conflicts)
        .then_some("no update was lost or refused, so this run proves nothing")
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.refusals.iter();
        let refused: Vec<String> = reasons
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let refused = refused.join(", ");
        if !self.check.right {
            write!(f, "**Failed**: {} lost", self.check.lost)?;
            if self.check.repeated != self.check.lost {
                write!(f, ", {} repeated", self.check.repeated)?;
            }
            if !refused.is_empty() {
                write!(f, "; refused: {refused}")?;
            }
            return Ok(());
        }
        if !refused.is_empty() {
            write!(f, "Refused: {refused}; ")?;
        }
        if self.micros_per_number < 1000.0 {
            write!(f, "{:.0} µs", self.micros_per_number)
        } else {
            write!(f, "{:.2} ms", self.micros_per_number / 1000.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_repeated_and_foreign_numbers_and_a_wrong_end_are_found() {
        assert!(Check::of(3, &[2, 3, 1], 3).right);
        let found = Check::of(5, &[1, 2, 2, 2, 3], 3);
        assert_eq!((found.lost, found.repeated, found.right), (2, 2, false));
        assert!(!Check::of(2, &[1, 2], 3).right);
        assert!(!Check::of(2, &[1, 2, 7], 2).right);
        assert!(!Check::of(1, &[0, 1], 1).right);
    }

    #[test]
    fn strategies_that_lock_must_be_right_and_the_plain_one_must_not() {
        let is_violation = |isolation, strategy, drawn: &[i64], refused| {
            let cell = Cell {
                check: Check::of(2, drawn, 2),
                refusals: (0..refused).map(|_| ("deadlock", 1)).collect(),
                micros_per_number: 1.0,
            };
            violation(isolation, strategy, &cell).is_some()
        };
        let (right, lost) = (&[1, 2], &[1, 1]);
        for isolation in [IsolationLevel::ReadCommitted, IsolationLevel::Serializable] {
            for strategy in [Strategy::ForUpdate, Strategy::NextNumber] {
                assert!(is_violation(isolation, strategy, lost, 0));
                assert!(!is_violation(isolation, strategy, right, 0));
                assert!(!is_violation(isolation, strategy, right, 1));
            }
            assert!(is_violation(isolation, Strategy::Plain, right, 0));
        }
        let (plain, serializable) = (Strategy::Plain, IsolationLevel::Serializable);
        assert!(!is_violation(IsolationLevel::ReadCommitted, plain, lost, 0));
        assert!(!is_violation(serializable, plain, right, 1));
        assert!(is_violation(serializable, plain, lost, 1));
    }
}
