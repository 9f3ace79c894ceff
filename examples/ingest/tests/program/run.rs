//! Runs the program and reads what it prints.

use std::process::{Command, Output};

use serde_json::Value;

/// The program with `--json` and these arguments.
pub(crate) fn ingest<S: AsRef<str>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingest"));
    command
        .arg("--json")
        .args(arguments.iter().map(AsRef::as_ref));
    command
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) outcome: Value,
    pub(crate) messages: String,
    pub(crate) code: Option<i32>,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = printed.lines().last().unwrap_or_default();
        Self {
            outcome: serde_json::from_str(last)
                .unwrap_or_else(|error| panic!("{error}: {printed}{messages}")),
            messages,
            code: output.status.code(),
        }
    }
}

impl Run {
    pub(crate) fn of<S: AsRef<str>>(arguments: &[S]) -> Self {
        ingest(arguments).output().expect("ingest starts").into()
    }

    pub(crate) fn number(&self, field: &str) -> u64 {
        self.outcome[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    pub(crate) fn assert_right(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
        for field in ["missing", "stale", "duplicates", "errors"] {
            assert_eq!(self.number(field), 0, "{field}: {self:?}");
        }
    }
}
