//! Runs the program, and checks its output.

use std::process::Command;

pub(crate) use crate::json_run::Run;

/// The program with `--json` and these arguments.
pub(crate) fn ingest<S: AsRef<str>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingest"));
    command
        .arg("--json")
        .args(arguments.iter().map(AsRef::as_ref));
    command
}

impl Run {
    pub(crate) fn of<S: AsRef<str>>(arguments: &[S]) -> Self {
        ingest(arguments).output().expect("ingest starts").into()
    }

    pub(crate) fn assert_right(&self) {
        self.assert_none_of(&["missing", "stale", "duplicates", "errors"]);
    }
}
