//! Runs the program, and checks its output.

use std::process::Command;

pub(crate) use crate::json_run::Run;

/// The program with `--json` and these arguments.
pub(crate) fn passes(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passes"));
    command.arg("--json").args(arguments);
    command
}

impl Run {
    pub(crate) fn of(arguments: &[&str]) -> Self {
        passes(arguments).output().expect("passes starts").into()
    }

    pub(crate) fn assert_right(&self) {
        self.assert_none_of(&["gaps", "repeats", "errors"]);
        assert_eq!(self.number("passes"), self.number("issued"), "{self:?}");
    }
}
