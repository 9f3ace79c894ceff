//! Every line is there once, whatever happens to the processes.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use program_support::on_servers;
use program_support::testing::{
    Run, Signal, TempDir, alive, assert_refused, children, path_in, signal, stopped, wait_until,
};

/// The program with `--json` and these arguments.
fn collate(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_collate"));
    command.arg("--json").args(arguments.split_whitespace());
    command
}

/// A small run, with more arguments.
fn small(more: &str) -> Run {
    let few = "--files 300 --lines 20 --list 10 --read-time 5ms";
    Run::of(&mut collate(&format!("{few} {more}")))
}

fn assert_right(run: &Run) {
    run.assert_code(0);
    run.assert_zero(&["missing", "repeated", "disordered", "foreign"]);
    run.assert_zero(&["shared_slots", "errors"]);
    assert_eq!(run.number("found"), run.number("lines"), "{run:?}");
    let (holders, permits) = (run.number("max_holders"), run.number("permits"));
    assert!((1..=permits).contains(&holders), "{run:?}");
    run.assert_numbers(&[("max_schedulers", 1)]);
}

fn runs_end_right_with_kills_and_pauses(url: &str) {
    let options = format!("--read-time 15ms --lease 400ms --database-url {url}");
    let killed = small(&format!("{options} --kill-every 300ms"));
    assert_right(&killed);
    assert!(url.starts_with(killed.outcome["backend"].as_str().expect("a text")));
    killed.assert_numbers(&[("max_holders", 10)]);
    killed.assert_some(&["kills"]);

    let paused = small(&format!("{options} --pause-every 200ms"));
    assert_right(&paused);
    paused.assert_some(&["pauses", "stale_stopped"]);
}

on_servers!(runs_end_right_with_kills_and_pauses);

#[test]
fn every_line_is_there_once_and_the_semaphore_is_full() {
    let run = small("--hours 3");
    assert_right(&run);
    assert_eq!(run.outcome["backend"], "sqlite");
    run.assert_numbers(&[
        ("files", 300),
        ("lines", 6000),
        ("hours", 3),
        ("processes", 3),
        ("threads", 5),
        ("max_holders", 10),
    ]);
    run.assert_zero(&["kills", "stale_stopped", "leftovers"]);
}

#[test]
fn there_are_no_more_holders_than_permits_and_no_more_than_workers() {
    for options in [
        "--permits 2 --read-time 0ms",
        "--permits 50 --processes 1 --threads 2",
    ] {
        let run = small(options);
        assert_right(&run);
        run.assert_numbers(&[("max_holders", 2)]);
    }
}

#[test]
fn work_of_killed_processes_is_done_by_others() {
    let run = small("--read-time 20ms --lease 400ms --kill-every 300ms");
    assert_right(&run);
    assert!(run.number("kills") > 1, "{run:?}");
    run.assert_some(&["takeovers"]);
}

#[test]
fn a_run_ends_however_often_processes_are_killed() {
    let run = small("--lease 100ms --tick 50ms --kill-every 10ms");
    assert_right(&run);
    assert!(run.number("kills") > 5, "{run:?}");
}

/// A run in which processes are repeatedly stopped for longer than their leases.
fn paused(more: &str) -> Run {
    let pauses = "--read-time 20ms --lease 300ms --tick 50ms --pause-every 200ms --processes 4";
    small(&format!("{pauses} {more}"))
}

#[test]
fn stale_workers_are_stopped() {
    let run = paused("");
    assert_right(&run);
    assert!(run.number("pauses") > 1, "{run:?}");
    run.assert_some(&["stale_stopped"]);
}

#[test]
fn fences_stop_careless_workers_when_they_commit() {
    let run = paused("--careless");
    assert_right(&run);
    run.assert_some(&["stale_at_commit"]);
}

#[test]
fn without_fences_harm_is_shown_and_is_no_failure() {
    let run = paused("--unfenced");
    run.assert_code(0);
    assert_eq!(run.outcome["fenced"], false);
    assert!(run.sum(&["missing", "repeated"]) > 0, "{run:?}");
}

#[test]
fn a_directory_keeps_one_file_for_each_hour_and_is_not_used_twice() {
    let directory = TempDir::new().expect("a directory");
    let options = format!(
        "--files 300 --hours 4 --read-time 5ms --directory {}",
        path_in(&directory, "")
    );
    assert_right(&Run::of(&mut collate(&options)));
    let hours = fs::read_dir(directory.path().join("hours")).expect("hours");
    assert_eq!(hours.count(), 4);

    let again = collate(&options).output().expect("collate starts");
    assert!(!again.status.success());
    let message = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(message.contains("has files already"), "{message}");
}

#[test]
fn unusable_arguments_are_refused() {
    let cases = [
        (["--kill-every", "1"], "500ms"),
        (["--files", "0"], "--files"),
        (["--permits", "0"], "--permits"),
        (["--permits", "100001"], "100001"),
        (["--lease", "0ms"], "lease"),
    ];
    assert_refused(|| collate(""), &cases);
}

/// Starts a long run, and waits until its workers are active. Returns it with the directory of its temporary files,
/// which a killed run leaves.
fn started(more: &str) -> (Child, Vec<u32>, TempDir) {
    let directory = TempDir::new().expect("a directory");
    let path = path_in(&directory, "collate.sqlite");
    let options = "--files 2000 --lines 10 --read-time 100ms --database-url";
    let child = collate(&format!("{options} {path} {more}"))
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("collate starts");
    let mut nodes = Vec::new();
    wait_until("three nodes are at work", || {
        nodes = children(child.id());
        nodes.len() >= 3 && lists_at_work(&path).unwrap_or(0) >= 3
    });
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

#[test]
fn interrupting_ends_soon_with_all_processes() {
    let (child, nodes, _directory) = started("--pause-every 200ms");
    wait_until("a node is stopped", || !stopped(&nodes).is_empty());
    signal(child.id(), Signal::INT);
    let now = Instant::now();
    let run = Run::from(child.wait_with_output().expect("collate ends"));
    assert!(now.elapsed() < Duration::from_secs(20), "{run:?}");
    run.assert_code(130);
    assert_eq!(run.outcome["interrupted"], true);
    assert_eq!(run.outcome["finished"], false);
    run.assert_zero(&["repeated", "errors"]);
    wait_until("all nodes have ended", || alive(&nodes).is_empty());
}

#[test]
fn nodes_end_with_a_killed_coordinator_though_they_are_stopped() {
    let (mut child, nodes, _directory) = started("");
    if cfg!(target_os = "linux") {
        signal(nodes[0], Signal::STOP);
    }
    signal(child.id(), Signal::KILL);
    child.wait().expect("collate ends");
    wait_until("all nodes have ended", || alive(&nodes).is_empty());
}

#[test]
fn a_node_that_somebody_else_kills_is_an_error() {
    let (child, nodes, _directory) = started("--read-time 10ms");
    signal(nodes[1], Signal::KILL);
    let run = Run::from(child.wait_with_output().expect("collate ends"));
    run.assert_code(1);
    run.assert_numbers(&[("errors", 1)]);
    run.assert_zero(&["missing", "repeated"]);
}
