//! Runs that are stopped, and a second run of the same command.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{assert_right, completed, ingest};
use diesel::prelude::*;
use program_test_support::Run;
use program_test_support::processes::{alive, children, signal};
use rustix::process::Signal;
use tempfile::TempDir;

/// Long enough to be interrupted.
const DOCUMENTS: &str = "20000";

struct Started {
    child: Child,
    arguments: Vec<String>,
    path: String,
    _directory: TempDir,
}

impl Started {
    /// Starts a run, and waits until it has stored some documents.
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("documents.sqlite");
        let path = path.to_str().expect("UTF-8").to_owned();
        let arguments = ["--documents", DOCUMENTS, "--database-url", &path].map(str::to_owned);
        let child = ingest(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ingest starts");
        let started = Self {
            child,
            arguments: arguments.into(),
            path,
            _directory: directory,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while started.stored().unwrap_or(0) < 100 {
            assert!(Instant::now() < deadline, "nothing is stored");
            thread::sleep(Duration::from_millis(10));
        }
        started
    }

    /// The number of rows; an error while the table is missing or locked.
    fn stored(&self) -> QueryResult<i64> {
        diesel::table! {
            ingest_documents (seq) {
                seq -> BigInt,
            }
        }
        let mut conn = SqliteConnection::establish(&self.path).map_err(|_| diesel::NotFound)?;
        ingest_documents::table.count().get_result(&mut conn)
    }

    /// Waits for the end of the run, and runs the same command again. Returns both runs, and the time until the end of
    /// the first.
    fn end_and_repeat(self) -> (Run, Duration, Run) {
        let now = Instant::now();
        let ended = Run::from(self.child.wait_with_output().expect("ingest ends"));
        (ended, now.elapsed(), completed(&self.arguments))
    }
}

#[test]
fn a_killed_writer_is_an_error_and_the_next_run_completes() {
    let run = Started::new();
    let writers = children(run.child.id());
    assert_eq!(writers.len(), 3);
    signal(writers[1], Signal::KILL);
    let (killed, _, repeated) = run.end_and_repeat();

    assert_eq!(killed.code, Some(1), "{killed:?}");
    assert_eq!(killed.number("writers_died"), 1);
    assert_eq!(killed.number("errors"), 1);
    assert_eq!(killed.number("duplicates"), 0);
    assert!(
        killed.messages.contains(&writers[1].to_string()),
        "{killed:?}"
    );
    assert!(
        killed.number("handled") < killed.number("documents"),
        "{killed:?}"
    );

    assert_right(&repeated);
    assert!(repeated.messages.contains("continuing"), "{repeated:?}");
}

#[test]
fn interrupting_ends_soon_with_what_was_done_and_the_next_run_completes() {
    let run = Started::new();
    signal(run.child.id(), Signal::INT);
    let (interrupted, ending, repeated) = run.end_and_repeat();

    assert!(ending < Duration::from_secs(20), "{ending:?}");
    assert_eq!(interrupted.code, Some(130), "{interrupted:?}");
    assert_eq!(interrupted.outcome["interrupted"], true);
    assert_eq!(interrupted.number("errors"), 0, "{interrupted:?}");
    assert_eq!(interrupted.number("duplicates"), 0);
    let handled = interrupted.number("handled");
    assert!((1..20_000).contains(&handled), "{interrupted:?}");

    assert_right(&repeated);
}

#[test]
fn writers_end_with_a_killed_coordinator() {
    let run = Started::new();
    let writers = children(run.child.id());
    signal(run.child.id(), Signal::KILL);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !alive(&writers).is_empty() {
        assert!(Instant::now() < deadline, "writers outlive the coordinator");
        thread::sleep(Duration::from_millis(20));
    }
    assert_right(&completed(&run.arguments));
}
