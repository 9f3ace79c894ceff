//! Runs the program, and checks its output.

use std::process::Command;

use program_test_support::Run;

/// The program with `--json` and these arguments.
pub(crate) fn passes(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passes"));
    command.arg("--json").args(arguments);
    command
}

/// The program has run to its end.
pub(crate) fn completed(arguments: &[&str]) -> Run {
    passes(arguments).output().expect("passes starts").into()
}

pub(crate) fn assert_right(run: &Run) {
    run.assert_none_of(&["gaps", "repeats", "errors"]);
    assert_eq!(run.number("passes"), run.number("issued"), "{run:?}");
}
