//! The results.

use serde::Serialize;

use crate::attempt::Refusal;
use crate::check::Check;
use crate::isolation::{self, IsolationLevel, LEVELS};
use crate::strategy::Strategy;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) connections: u16,
    /// The increments of each connection in each strategy.
    pub(crate) numbers: u32,
    pub(crate) engines: Vec<EngineOutcome>,
    /// Messages about unexpected results.
    pub(crate) violations: Vec<String>,
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
    #[serde(serialize_with = "isolation::by_name")]
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

    /// The strategies of which some level was run.
    pub(crate) fn strategies(&self) -> Vec<Strategy> {
        let was_run = |strategy: &Strategy| {
            self.cells
                .iter()
                .any(|cell| cell.strategy == *strategy && cell.measured.is_some())
        };
        Strategy::ALL.into_iter().filter(was_run).collect()
    }
}
