//! Runs that end before all passes are issued.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::run::passes;
use diesel::prelude::*;
use program_test_support::Run;
use program_test_support::processes::signal as send;
use rustix::process::Signal;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// The number of passes; an error while the table is missing or locked.
fn stored(path: &str) -> QueryResult<i64> {
    diesel::table! {
        pass (id) {
            id -> BigInt,
        }
    }
    let mut conn = SqliteConnection::establish(path).map_err(|_| diesel::NotFound)?;
    pass::table.count().get_result(&mut conn)
}

/// Starts a long run, and ends it by the signal while it is active. Returns its output, and the path of its database.
fn ended_by(signal: Signal, directory: &TempDir) -> (std::process::Output, String) {
    let path = directory.path().join("passes.sqlite");
    let path = path.to_str().expect("UTF-8").to_owned();
    let child = passes(&["--passes", "100000", "--database-url", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("passes starts");
    let deadline = Instant::now() + PATIENCE;
    while stored(&path).unwrap_or(0) < 50 {
        assert!(Instant::now() < deadline, "no passes are issued");
        thread::yield_now();
    }
    send(child.id(), signal);
    (child.wait_with_output().expect("passes ends"), path)
}

#[test]
fn an_interrupted_run_is_right_as_far_as_it_came() {
    let directory = TempDir::new().expect("a directory");
    let run = Run::from(ended_by(Signal::INT, &directory).0);
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(run.outcome["interrupted"], true);
    assert!(run.number("issued") > 0, "{run:?}");
    assert_eq!(run.number("passes"), run.number("issued"), "{run:?}");
    run.assert_zero(&["gaps", "repeats", "errors"]);
}

#[test]
fn a_killed_run_leaves_no_gaps() {
    diesel::table! {
        pass (id) {
            id -> BigInt,
            meeting_id -> BigInt,
            number -> BigInt,
        }
    }
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
