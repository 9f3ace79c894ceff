//! Runs that are stopped half-way leave no processes behind.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{Run, collate};
use diesel::prelude::*;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A run that would take long, with workers at work, and where its temporary files are: killed, it leaves
/// them.
fn started(more: &[&str]) -> (Child, Vec<String>, TempDir) {
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
    let parent = child.id().to_string();
    let mut nodes = Vec::new();
    while nodes.len() < 3 || lists_at_work(path).unwrap_or(0) < 3 {
        assert!(Instant::now() < deadline, "no nodes at work");
        thread::sleep(Duration::from_millis(20));
        let listed = ps(&["-o", "pid=", "--ppid", &parent]);
        nodes = listed.split_whitespace().map(str::to_owned).collect();
    }
    (child, nodes, directory)
}

/// How many lists workers have taken and not yet done; an error while the table is missing or locked.
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

fn ps(arguments: &[&str]) -> String {
    let listed = Command::new("ps").args(arguments).output();
    String::from_utf8_lossy(&listed.expect("ps").stdout).into_owned()
}

/// Until one of the processes is stopped by a signal.
fn await_stopped(processes: &[String]) {
    let deadline = Instant::now() + PATIENCE;
    while !ps(&["-o", "stat=", "-p", &processes.join(",")])
        .lines()
        .any(|state| state.trim().starts_with('T'))
    {
        assert!(Instant::now() < deadline, "none is stopped");
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(name: &str, process: &str) {
    let status = Command::new("kill").args(["-s", name, process]).status();
    assert!(status.expect("kill").success());
}

/// Until none of the processes is there any more.
fn assert_all_end(processes: &[String]) {
    let deadline = Instant::now() + PATIENCE;
    // Signal 0 asks whether the process is there.
    let is_alive = |process: &String| {
        let asked = Command::new("kill")
            .args(["-0", process])
            .stderr(Stdio::null())
            .status();
        asked.expect("kill").success()
    };
    while processes.iter().any(is_alive) {
        assert!(Instant::now() < deadline, "processes are left");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn interrupting_ends_soon_with_all_processes() {
    let (child, nodes, _directory) = started(&["--pause-every", "200ms"]);
    await_stopped(&nodes);
    signal("INT", &child.id().to_string());
    let now = Instant::now();
    let run = Run::from(child.wait_with_output().expect("collate ends"));
    assert!(now.elapsed() < Duration::from_secs(20), "{run:?}");
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(run.outcome["interrupted"], true);
    assert_eq!(run.outcome["finished"], false);
    for field in ["repeated", "errors"] {
        assert_eq!(run.number(field), 0, "{field}: {run:?}");
    }
    assert_all_end(&nodes);
}

#[test]
fn nodes_end_with_a_killed_coordinator_though_they_are_stopped() {
    let (mut child, nodes, _directory) = started(&[]);
    if cfg!(target_os = "linux") {
        signal("STOP", &nodes[0]);
    }
    signal("KILL", &child.id().to_string());
    child.wait().expect("collate ends");
    assert_all_end(&nodes);
}

#[test]
fn a_node_that_somebody_else_kills_is_an_error() {
    let (child, nodes, _directory) = started(&["--read-time", "10ms"]);
    signal("KILL", &nodes[1]);
    let run = Run::from(child.wait_with_output().expect("collate ends"));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.number("errors"), 1, "{run:?}");
    for field in ["missing", "repeated"] {
        assert_eq!(run.number(field), 0, "{field}: {run:?}");
    }
}
