//! Runs the program, and checks its output.

use std::process::Command;

use program_test_support::Run;

/// The program with `--json` and these arguments.
pub(crate) fn collate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_collate"));
    command.arg("--json").args(arguments);
    command
}

/// The program has run to its end.
pub(crate) fn completed(arguments: &[&str]) -> Run {
    collate(arguments).output().expect("collate starts").into()
}

pub(crate) fn assert_right(run: &Run) {
    run.assert_none_of(&[
        "missing",
        "repeated",
        "disordered",
        "foreign",
        "shared_slots",
        "errors",
    ]);
    assert_eq!(run.number("found"), run.number("lines"), "{run:?}");
    let (holders, permits) = (run.number("max_holders"), run.number("permits"));
    assert!((1..=permits).contains(&holders), "{run:?}");
    assert_eq!(run.number("max_schedulers"), 1, "{run:?}");
}
