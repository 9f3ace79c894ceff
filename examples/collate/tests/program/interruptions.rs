//! Runs that are stopped half-way leave no processes behind.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{Run, collate};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A run that would take long, with nodes at work, and where its temporary files are: killed, it leaves
/// them.
fn started(more: &[&str]) -> (Child, Vec<String>, TempDir) {
    let directory = TempDir::new().expect("a directory");
    let options = ["--files", "2000", "--lines", "10", "--read-time", "100ms"];
    let child = collate(&[&options, more].concat())
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("collate starts");
    let deadline = Instant::now() + PATIENCE;
    let parent = child.id().to_string();
    let mut nodes = Vec::new();
    while nodes.len() < 3 {
        assert!(Instant::now() < deadline, "no nodes");
        thread::sleep(Duration::from_millis(20));
        let listed = Command::new("ps")
            .args(["-o", "pid=", "--ppid", &parent])
            .output();
        let pids = String::from_utf8_lossy(&listed.expect("ps").stdout).into_owned();
        nodes = pids.split_whitespace().map(str::to_owned).collect();
    }
    thread::sleep(Duration::from_millis(500));
    (child, nodes, directory)
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
