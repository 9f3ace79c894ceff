//! Passes are numbered without gaps, whatever fails.

use std::process::{Command, Output};

use diesel::prelude::*;
use program_support::on_servers;
use program_support::testing::{Run, Signal, TempDir, path_in, signal as send, started};

diesel::table! {
    pass (meeting_id, number) {
        meeting_id -> BigInt,
        number -> BigInt,
    }
}

const SMALL: [&str; 4] = ["--meetings", "5", "--passes", "60"];

/// The program with `--json` and these arguments.
fn passes(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passes"));
    command.arg("--json").args(arguments);
    command
}

fn small(more: &[&str]) -> Run {
    Run::of(&mut passes(&[&SMALL, more].concat()))
}

fn assert_right(run: &Run) {
    run.assert_code(0);
    run.assert_zero(&["gaps", "repeats", "errors"]);
    assert_eq!(run.number("passes"), run.number("issued"), "{run:?}");
}

fn passes_are_gap_free_with_sequences_and_not_without(url: &str) {
    let options = ["--database-url", url, "--failures", "40"];
    let run = small(&options);
    assert_right(&run);
    let backend = run.outcome["backend"].as_str().expect("a text");
    assert!(url.starts_with(backend) || backend == "sqlite", "{run:?}");
    run.assert_numbers(&[("meetings", 5), ("passes", 300), ("workers", 8)]);
    let kinds = ["failed", "panicked", "disconnected"];
    run.assert_some(&kinds);
    assert_eq!(run.sum(&kinds), run.number("rollbacks"));
    for (careless, harm) in [("max", "repeats"), ("own-transaction", "gaps")] {
        let run = small(&[&options[..], &["--careless", careless]].concat());
        run.assert_code(1);
        assert_eq!(run.outcome["careless"], careless);
        run.assert_some(&[harm]);
        run.assert_zero(&["errors"]);
    }
}

#[test]
fn passes_on_sqlite_are_gap_free_with_sequences_and_not_without() {
    let directory = TempDir::new().expect("a directory");
    let path = path_in(&directory, "passes.sqlite");
    passes_are_gap_free_with_sequences_and_not_without(&path);
}

on_servers!(passes_are_gap_free_with_sequences_and_not_without);

/// Starts a long run, and ends it by the signal while it is active. Returns its output, and the path of its database.
fn ended_by(signal: Signal, directory: &TempDir) -> (Output, String) {
    let path = path_in(directory, "passes.sqlite");
    let mut command = passes(&["--passes", "100000", "--database-url", &path]);
    let child = started(&mut command, &path, "pass", 50);
    send(child.id(), signal);
    (child.wait_with_output().expect("passes ends"), path)
}

#[test]
fn an_interrupted_run_is_right_as_far_as_it_came() {
    let directory = TempDir::new().expect("a directory");
    let run = Run::from(ended_by(Signal::INT, &directory).0);
    run.assert_code(130);
    assert_eq!(run.outcome["interrupted"], true);
    run.assert_some(&["issued"]);
    assert_eq!(run.number("passes"), run.number("issued"), "{run:?}");
    run.assert_zero(&["gaps", "repeats", "errors"]);
}

#[test]
fn a_killed_run_leaves_no_gaps() {
    let directory = TempDir::new().expect("a directory");
    let (_, path) = ended_by(Signal::KILL, &directory);
    let mut conn = SqliteConnection::establish(&path).expect("the file");
    let numbers: Vec<(i64, i64)> = pass::table
        .order((pass::meeting_id, pass::number))
        .select((pass::meeting_id, pass::number))
        .load(&mut conn)
        .expect("passes");
    let mut before = (0, 0);
    for (meeting, number) in numbers {
        let expected = if meeting == before.0 { before.1 + 1 } else { 1 };
        assert_eq!(number, expected, "of the meeting {meeting}");
        before = (meeting, number);
    }
}
