//! Runs on SQLite.

use std::fs;

use crate::run::{assert_right, collate, completed};
use program_test_support::{Run, assert_refused};
use tempfile::TempDir;

const SMALL: [&str; 8] = [
    "--files",
    "300",
    "--lines",
    "20",
    "--list",
    "10",
    "--read-time",
    "5ms",
];

fn small(more: &[&str]) -> Run {
    completed(&[&SMALL, more].concat())
}

#[test]
fn every_line_is_there_once_and_the_semaphore_is_full() {
    let run = small(&["--hours", "3"]);
    assert_right(&run);
    assert_eq!(run.outcome["backend"], "sqlite");
    run.assert_numbers(&[
        ("files", 300),
        ("lines", 6000),
        ("hours", 3),
        ("processes", 3),
        ("threads", 5),
        ("max_holders", 10),
        ("kills", 0),
        ("stale_stopped", 0),
        ("leftovers", 0),
    ]);
}

#[test]
fn fewer_permits_mean_fewer_holders() {
    let run = small(&["--permits", "2", "--read-time", "0ms"]);
    assert_right(&run);
    assert_eq!(run.number("max_holders"), 2);
}

#[test]
fn runs_with_more_permits_than_workers_end_right() {
    let run = small(&["--permits", "50", "--processes", "1", "--threads", "2"]);
    assert_right(&run);
    assert_eq!(run.number("max_holders"), 2);
}

#[test]
fn work_of_killed_processes_is_done_by_others() {
    let run = small(&[
        "--read-time",
        "20ms",
        "--lease",
        "400ms",
        "--kill-every",
        "300ms",
    ]);
    assert_right(&run);
    assert!(run.number("kills") > 1, "{run:?}");
    assert!(run.number("takeovers") > 0, "{run:?}");
}

#[test]
fn a_run_ends_however_often_processes_are_killed() {
    let run = small(&["--lease", "100ms", "--tick", "50ms", "--kill-every", "10ms"]);
    assert_right(&run);
    assert!(run.number("kills") > 5, "{run:?}");
}

/// The options of a run in which processes are repeatedly stopped for longer than their leases.
const PAUSES: [&str; 10] = [
    "--read-time",
    "20ms",
    "--lease",
    "300ms",
    "--tick",
    "50ms",
    "--pause-every",
    "200ms",
    "--processes",
    "4",
];

#[test]
fn stale_workers_are_stopped() {
    let run = small(&PAUSES);
    assert_right(&run);
    assert!(run.number("pauses") > 1, "{run:?}");
    assert!(run.number("stale_stopped") > 0, "{run:?}");
}

#[test]
fn fences_stop_careless_workers_when_they_commit() {
    let run = small(&[&PAUSES[..], &["--careless"]].concat());
    assert_right(&run);
    assert!(run.number("stale_at_commit") > 0, "{run:?}");
}

#[test]
fn without_fences_harm_is_shown_and_is_no_failure() {
    let run = small(&[&PAUSES[..], &["--unfenced"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.outcome["fenced"], false);
    let harm = ["missing", "repeated"].map(|field| run.number(field));
    assert!(harm.iter().sum::<u64>() > 0, "{run:?}");
}

#[test]
fn a_directory_keeps_one_file_for_each_hour_and_is_not_used_twice() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    let arguments = [&SMALL[..], &["--hours", "4", "--directory", path]].concat();
    assert_right(&completed(&arguments));
    let hours = fs::read_dir(directory.path().join("hours")).expect("hours");
    assert_eq!(hours.count(), 4);

    let again = collate(&arguments).output().expect("collate starts");
    assert!(!again.status.success());
    let message = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(message.contains("has files already"), "{message}");
}

#[test]
fn unusable_arguments_are_refused() {
    let cases = [
        (["--database-url", "oracle://x"], "not oracle://"),
        (["--database-url", ":memory:"], "name a file"),
        (["--kill-every", "1"], "500ms"),
        (["--files", "0"], "--files"),
        (["--permits", "0"], "--permits"),
        (["--permits", "100001"], "100001"),
        (["--lease", "0ms"], "lease"),
    ];
    assert_refused(|| collate(&[]), &cases);
}
