//! Runs the program and reads what it prints.

use std::process::{Command, Output};

use serde_json::Value;

/// The program with `--json` and these arguments.
pub(crate) fn passes(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passes"));
    command.arg("--json").args(arguments);
    command
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) outcome: Value,
    /// For the message of a test that fails.
    #[expect(dead_code, reason = "shown by Debug")]
    messages: String,
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
    pub(crate) fn of(arguments: &[&str]) -> Self {
        passes(arguments).output().expect("passes starts").into()
    }

    pub(crate) fn number(&self, field: &str) -> u64 {
        self.outcome[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    pub(crate) fn assert_right(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
        for field in ["gaps", "repeats", "errors"] {
            assert_eq!(self.number(field), 0, "{field}: {self:?}");
        }
        assert_eq!(self.number("passes"), self.number("issued"), "{self:?}");
    }
}
