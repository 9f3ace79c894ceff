//! The results: a check that every number was assigned once, what a run must not have, and a table in Markdown.

use std::collections::BTreeSet;
use std::fmt;

use diesel_locks::IsolationLevel;
use serde::{Serialize, Serializer};

use crate::strategy::Strategy;
use crate::workload::Refusal;

/// The isolation levels, from the lowest.
pub(crate) const LEVELS: [IsolationLevel; 3] = [
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

/// As SQL calls it.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn by_name<S: Serializer>(isolation: &IsolationLevel, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(isolation)
}

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) connections: u16,
    /// The increments of each connection in each strategy.
    pub(crate) numbers: u32,
    pub(crate) engines: Vec<EngineOutcome>,
    /// Messages about unexpected results.
    pub(crate) violations: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(connections: u16, numbers: u32, engines: Vec<EngineOutcome>) -> Self {
        Self {
            connections,
            numbers,
            violations: engines.iter().flat_map(violations).collect(),
            engines,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct EngineOutcome {
    /// The engine's name and version.
    pub(crate) engine: String,
    pub(crate) cells: Vec<Cell>,
}

/// A strategy at a level on an engine.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    #[serde(serialize_with = "by_name")]
    pub(crate) isolation: IsolationLevel,
    pub(crate) strategy: Strategy,
    pub(crate) verdict: Verdict,
    /// `None` when it was skipped.
    #[serde(flatten)]
    pub(crate) measured: Option<Measured>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Every number once, and no transaction was refused.
    Right,
    /// Every number once, after retries of refused transactions.
    Refused,
    /// Numbers were lost or repeated.
    Failed,
    /// The engine does not have this strategy or level.
    Skipped,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) lost: usize,
    pub(crate) repeated: usize,
    #[serde(flatten)]
    pub(crate) refusals: Refusals,
    pub(crate) micros_per_number: f64,
}

/// The numbers of refused transactions, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Refusals {
    pub(crate) deadlocks: u64,
    pub(crate) serialization_failures: u64,
    pub(crate) busy: u64,
}

impl Refusals {
    pub(crate) fn add(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Deadlock => self.deadlocks += 1,
            Refusal::Serialization => self.serialization_failures += 1,
            Refusal::Busy => self.busy += 1,
        }
    }

    pub(crate) fn sum(self) -> u64 {
        self.deadlocks + self.serialization_failures + self.busy
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            deadlocks: self.deadlocks + more.deadlocks,
            serialization_failures: self.serialization_failures + more.serialization_failures,
            busy: self.busy + more.busy,
        }
    }
}

impl Verdict {
    pub(crate) fn of(check: Check, refusals: Refusals) -> Self {
        if !check.right {
            Self::Failed
        } else if refusals.sum() > 0 {
            Self::Refused
        } else {
            Self::Right
        }
    }
}

impl EngineOutcome {
    pub(crate) fn cell(&self, isolation: IsolationLevel, strategy: Strategy) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.isolation == isolation && cell.strategy == strategy)
    }

    /// The levels at which something was run.
    pub(crate) fn levels(&self) -> Vec<IsolationLevel> {
        let was_run = |level: &IsolationLevel| {
            self.cells
                .iter()
                .any(|cell| cell.isolation == *level && cell.measured.is_some())
        };
        LEVELS.into_iter().filter(was_run).collect()
    }
}

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

/// The violations as sentences; none if all results are as they must be.
fn violations(outcome: &EngineOutcome) -> Vec<String> {
    let about = |cell: &Cell| violation(cell).map(|text| (cell.isolation, cell.strategy, text));
    outcome
        .cells
        .iter()
        .filter_map(about)
        .map(|(isolation, strategy, text)| {
            format!("{}, {isolation}, {strategy}: {text}", outcome.engine)
        })
        .collect()
}

fn violation(cell: &Cell) -> Option<&'static str> {
    if cell.verdict == Verdict::Skipped {
        None
    } else if cell.verdict == Verdict::Failed && cell.strategy.must_be_right(cell.isolation) {
        Some("numbers were lost or repeated, which must not be")
    } else if cell.strategy == Strategy::Plain
        && expected_loss(cell.isolation).is_some_and(|expected| expected != cell.verdict)
    {
        Some("no update was lost or refused, so this run proves nothing")
    } else {
        None
    }
}

/// The verdict that a plain SELECT before an UPDATE must have. At REPEATABLE READ, engines differ.
fn expected_loss(isolation: IsolationLevel) -> Option<Verdict> {
    match isolation {
        IsolationLevel::ReadCommitted => Some(Verdict::Failed),
        IsolationLevel::RepeatableRead => None,
        IsolationLevel::Serializable => Some(Verdict::Refused),
    }
}

/// A table in Markdown with a row for each engine and level, and a column for each strategy.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| |")?;
        for strategy in Strategy::ALL {
            write!(f, " {strategy} |")?;
        }
        write!(f, "\n|---|{}", "---|".repeat(Strategy::ALL.len()))?;
        for engine in &self.engines {
            for isolation in engine.levels() {
                write!(f, "\n| {}, {isolation} |", engine.engine)?;
                for strategy in Strategy::ALL {
                    match engine.cell(isolation, strategy) {
                        Some(cell) => write!(f, " {cell} |")?,
                        None => write!(f, " |")?,
                    }
                }
            }
        }
        write!(
            f,
            "\n\n{} connections, {} numbers each.",
            self.connections, self.numbers
        )
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(measured) = &self.measured else {
            return f.write_str("Skipped");
        };
        match self.verdict {
            Verdict::Skipped => f.write_str("Skipped"),
            Verdict::Right => write!(f, "{}", Time(measured.micros_per_number)),
            Verdict::Refused => write!(
                f,
                "Refused: {}; {}",
                Refused(measured),
                Time(measured.micros_per_number)
            ),
            Verdict::Failed => {
                write!(f, "**Failed**: {} lost", measured.lost)?;
                if measured.repeated != measured.lost {
                    write!(f, ", {} repeated", measured.repeated)?;
                }
                if measured.refusals.sum() > 0 {
                    write!(f, "; refused: {}", Refused(measured))?;
                }
                Ok(())
            }
        }
    }
}

/// Refusals by their reason.
struct Refused<'a>(&'a Measured);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusals = &self.0.refusals;
        let reasons = [
            (refusals.deadlocks, "deadlock"),
            (refusals.serialization_failures, "serialization"),
            (refusals.busy, "busy"),
        ];
        let reasons: Vec<String> = reasons
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        f.write_str(&reasons.join(", "))
    }
}

/// Microseconds, displayed with a readable unit.
struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000.0 {
            write!(f, "{:.0} µs", self.0)
        } else {
            write!(f, "{:.2} ms", self.0 / 1000.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn complains(isolation: IsolationLevel, strategy: Strategy, verdict: Verdict) -> bool {
        let cell = Cell {
            isolation,
            strategy,
            verdict,
            measured: None,
        };
        let outcome = EngineOutcome {
            engine: "an engine".into(),
            cells: vec![cell],
        };
        !violations(&outcome).is_empty()
    }

    #[test]
    fn a_way_that_locks_must_not_fail() {
        for isolation in LEVELS {
            for strategy in [
                Strategy::ForUpdate,
                Strategy::OneUpdate,
                Strategy::NextNumber,
            ] {
                assert!(complains(isolation, strategy, Verdict::Failed));
                assert!(!complains(isolation, strategy, Verdict::Refused));
                assert!(!complains(isolation, strategy, Verdict::Right));
            }
        }
    }

    #[test]
    fn the_plain_strategy_must_lose_updates() {
        let plain = |isolation, verdict| complains(isolation, Strategy::Plain, verdict);
        assert!(plain(IsolationLevel::ReadCommitted, Verdict::Right));
        assert!(!plain(IsolationLevel::ReadCommitted, Verdict::Failed));
        assert!(plain(IsolationLevel::Serializable, Verdict::Right));
        assert!(plain(IsolationLevel::Serializable, Verdict::Failed));
        assert!(!plain(IsolationLevel::Serializable, Verdict::Refused));
        assert!(!plain(IsolationLevel::Serializable, Verdict::Skipped));
    }

    fn shown(verdict: Verdict, lost: usize, deadlocks: u64, micros_per_number: f64) -> String {
        let refusals = Refusals {
            deadlocks,
            ..Refusals::default()
        };
        let measured = Measured {
            lost,
            repeated: lost,
            refusals,
            micros_per_number,
        };
        let cell = Cell {
            isolation: IsolationLevel::Serializable,
            strategy: Strategy::Plain,
            verdict,
            measured: Some(measured),
        };
        cell.to_string()
    }

    #[test]
    fn cells() {
        assert_eq!(shown(Verdict::Right, 0, 0, 463.4), "463 µs");
        assert_eq!(
            shown(Verdict::Refused, 0, 7, 2345.6),
            "Refused: 7 deadlock; 2.35 ms"
        );
        assert_eq!(shown(Verdict::Failed, 9, 0, 1.0), "**Failed**: 9 lost");
        assert_eq!(
            shown(Verdict::Failed, 9, 2, 1.0),
            "**Failed**: 9 lost; refused: 2 deadlock"
        );
    }
}
