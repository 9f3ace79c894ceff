//! Runs the program, and checks its output.

use std::process::Command;

pub(crate) use crate::json_run::Run;

/// The program with `--json` and these arguments.
pub(crate) fn collate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_collate"));
    command.arg("--json").args(arguments);
    command
}

impl Run {
    pub(crate) fn of(arguments: &[&str]) -> Self {
        collate(arguments).output().expect("collate starts").into()
    }

    pub(crate) fn assert_right(&self) {
        self.assert_none_of(&[
            "missing",
            "repeated",
            "disordered",
            "foreign",
            "shared_slots",
            "errors",
        ]);
        assert_eq!(self.number("found"), self.number("lines"), "{self:?}");
        let (holders, permits) = (self.number("max_holders"), self.number("permits"));
        assert!((1..=permits).contains(&holders), "{self:?}");
        assert_eq!(self.number("max_queuers"), 1, "{self:?}");
    }
}
