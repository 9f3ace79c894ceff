//! How a check ended.

use std::process::{Command, ExitStatus};

use anyhow::Result;

use crate::run;

/// How a check ended.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// It was not made, for this reason.
    Skipped(String),
}

impl Outcome {
    /// The outcome of a check that has found these problems.
    pub(crate) fn of(problems: &[String]) -> Self {
        if problems.is_empty() {
            Self::Passed
        } else {
            Self::Failed(problems.join("; "))
        }
    }
}

/// Runs the command, which has to succeed.
pub(crate) fn passes(command: &mut Command) -> Result<Outcome> {
    Ok(outcome(run::run(command)?))
}

/// The outcome that the exit status means.
pub(crate) fn outcome(status: ExitStatus) -> Outcome {
    if status.success() {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{status}, see above"))
    }
}
