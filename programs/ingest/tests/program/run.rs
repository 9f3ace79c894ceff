//! Runs the program, and checks its output.

use std::process::Command;

use program_test_support::Run;

/// The program with `--json` and these arguments.
pub(crate) fn ingest<S: AsRef<str>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingest"));
    command
        .arg("--json")
        .args(arguments.iter().map(AsRef::as_ref));
    command
}

/// The program has run to its end.
pub(crate) fn completed<S: AsRef<str>>(arguments: &[S]) -> Run {
    ingest(arguments).output().expect("ingest starts").into()
}

pub(crate) fn assert_right(run: &Run) {
    run.assert_none_of(&["missing", "stale", "duplicates", "errors"]);
}
