//! Runs that are stopped leave no processes behind.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::collate;
use diesel::prelude::*;
use program_test_support::Run;
use program_test_support::processes::{alive, children, signal, stopped};
use rustix::process::Signal;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a long run, and waits until its workers are active. Returns it with the directory of its temporary files,
/// which a killed run leaves.
fn started(more: &[&str]) -> (Child, Vec<u32>, TempDir) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("collate.sqlite");
    let path = path.to_str().expect("UTF-8");
    let options = ["--files", "2000", "--lines", "10", "--read-time", "100ms"];
    let child = collate(&[&options[..], &["--database-url", path], more].concat())
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("collate starts");
    let deadline = Instant::now() + PATIENCE;
    let mut nodes = Vec::new();
    while nodes.len() < 3 || lists_at_work(path).unwrap_or(0) < 3 {
        assert!(Instant::now() < deadline, "no nodes at work");
        thread::sleep(Duration::from_millis(20));
        nodes = children(child.id());
    }
    (child, nodes, directory)
}

/// The number of lists that workers have taken and not finished; an error while the table is missing or locked.
fn lists_at_work(path: &str) -> QueryResult<i64> {
    diesel::table! {
        collate_lists (id) {
            id -> BigInt,
            state -> Integer,
        }
    }
    let mut conn = SqliteConnection::establish(path).map_err(|_| diesel::NotFound)?;
    let taken = collate_lists::table.filter(collate_lists::state.eq(1));
    taken.count().get_result(&mut conn)
}

/// Waits until a signal has stopped one of the processes.
fn await_stopped(processes: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while stopped(processes).is_empty() {
        assert!(Instant::now() < deadline, "none is stopped");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until all processes have ended.
fn assert_all_end(processes: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while !alive(processes).is_empty() {
        assert!(Instant::now() < deadline, "processes are left");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn interrupting_ends_soon_with_all_processes() {
    let (child, nodes, _directory) = started(&["--pause-every", "200ms"]);
    await_stopped(&nodes);
    signal(child.id(), Signal::INT);
    let now = Instant::now();
    let run = Run::from(child.wait_with_output().expect("collate ends"));
    assert!(now.elapsed() < Duration::from_secs(20), "{run:?}");
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(run.outcome["interrupted"], true);
    assert_eq!(run.outcome["finished"], false);
    run.assert_zero(&["repeated", "errors"]);
    assert_all_end(&nodes);
}

#[test]
fn nodes_end_with_a_killed_coordinator_though_they_are_stopped() {
    let (mut child, nodes, _directory) = started(&[]);
    if cfg!(target_os = "linux") {
        signal(nodes[0], Signal::STOP);
    }
    signal(child.id(), Signal::KILL);
    child.wait().expect("collate ends");
    assert_all_end(&nodes);
}

#[test]
fn a_node_that_somebody_else_kills_is_an_error() {
    let (child, nodes, _directory) = started(&["--read-time", "10ms"]);
    signal(nodes[1], Signal::KILL);
    let run = Run::from(child.wait_with_output().expect("collate ends"));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.number("errors"), 1, "{run:?}");
    run.assert_zero(&["missing", "repeated"]);
}
