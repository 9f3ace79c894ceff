//! The outcome of a run: what was counted, a check of the table, and the exit code.
//!
//! The check knows nothing but the numbers in the table: no sequence, no lock, and not what workers report.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use program_support::database::Engine;
use program_support::outcome::{INTERRUPTED, Verdict, per_second, thousandths};
use serde::Serialize;

use crate::{Arguments, Careless};

/// The totals of the workers' reports.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Passes whose transactions were committed.
    pub(crate) issued: usize,
    /// Transactions that failed after drawing: all, and by kind.
    pub(crate) rollbacks: usize,
    pub(crate) failed: usize,
    pub(crate) panicked: usize,
    pub(crate) disconnected: usize,
    /// The number of retries of transactions that the database aborted.
    pub(crate) retries: u32,
    pub(crate) errors: usize,
    pub(crate) interrupted: bool,
    #[serde(skip)]
    pub(crate) took: Duration,
}

/// The errors in the numbers of one meeting, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: Engine,
    meetings: u32,
    workers: usize,
    #[serde(flatten)]
    counts: Counts,
    #[serde(flatten)]
    checked: CheckResult,
    seconds: f64,
    per_second: f64,
    careless: Option<Careless>,
}

impl Outcome {
    pub(crate) fn new(
        backend: Engine,
        arguments: &Arguments,
        counts: Counts,
        checked: CheckResult,
    ) -> Self {
        let seconds = counts.took.as_secs_f64();
        Self {
            backend,
            meetings: arguments.meetings.get(),
            workers: arguments.workers.get(),
            seconds: thousandths(seconds),
            per_second: per_second(counts.issued, seconds),
            careless: arguments.careless,
            counts,
            checked,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if !self.is_right() || self.counts.errors > 0 {
            ExitCode::FAILURE
        } else if self.counts.interrupted {
            ExitCode::from(INTERRUPTED)
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Whether the passes of every meeting are numbered from 1, and the table contains exactly the issued passes.
    fn is_right(&self) -> bool {
        self.checked.gaps + self.checked.repeats == 0 && self.checked.passes == self.counts.issued
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match (self.is_right(), self.careless) {
            (true, _) if self.counts.errors > 0 => Verdict::Wrong("right, but with errors"),
            (true, _) if self.counts.interrupted => Verdict::Doubtful("interrupted; right so far"),
            (true, _) => Verdict::Right("right: the passes of every meeting are numbered 1 to n"),
            (false, None) => Verdict::Wrong("WRONG"),
            (false, Some(Careless::Max)) => {
                Verdict::Wrong("WRONG: several workers read the same largest number")
            }
            (false, Some(Careless::OwnTransaction)) => {
                Verdict::Wrong("WRONG: the numbers of passes that were not issued are lost")
            }
        }
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
