//! The results.

use serde::Serialize;

use crate::attempt::Refusal;
use crate::check::Check;
use crate::isolation::{self, IsolationLevel};
use crate::way::Way;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) connections: u16,
    /// The increments of each connection in each way.
    pub(crate) numbers: u32,
    pub(crate) engines: Vec<EngineOutcome>,
    /// Messages about unexpected results.
    pub(crate) complaints: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct EngineOutcome {
    /// The engine's name and version.
    pub(crate) engine: String,
    pub(crate) cells: Vec<Cell>,
}

/// A way at a level on an engine.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    #[serde(serialize_with = "isolation::by_name")]
    pub(crate) isolation: IsolationLevel,
    pub(crate) way: Way,
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
    /// The engine does not have this way or level.
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
    pub(crate) fn cell(&self, isolation: IsolationLevel, way: Way) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.isolation == isolation && cell.way == way)
    }
}
