//! Every line is there once, whatever happens to the processes.

use std::fs;
use std::process::Command;

use program_support::on_servers;
use program_support::testing::{Run, Signal, TempDir, any_alive, children, signal, wait_until};

/// The program with `--json` and these arguments.
fn collate(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_collate"));
    command.arg("--json").args(arguments.split_whitespace());
    command
}

/// A run over this number of files, with more arguments.
fn over(files: u32, more: &str) -> Run {
    Run::of(&mut collate(&format!(
        "--files {files} --read-time 5ms {more}"
    )))
}

/// A small run, with more arguments.
fn small(more: &str) -> Run {
    over(300, more)
}

/// A run, with more arguments, after which one of these numbers is not 0. The processes that were paused may have had no work in
/// hand: then a longer run follows.
fn until_some(fields: &[&str], more: &str) -> Run {
    let mut runs = [300, 1_200, 4_800]
        .into_iter()
        .map(|files| over(files, more));
    let ended = runs.find(|run| run.sum(fields) > 0);
    ended.unwrap_or_else(|| panic!("none of {fields:?} after {more}"))
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

    let paused = until_some(
        &["stale_stopped"],
        &format!("{options} --pause-every 200ms"),
    );
    assert_right(&paused);
    paused.assert_some(&["pauses"]);
}

on_servers!(runs_end_right_with_kills_and_pauses);

#[test]
fn every_line_is_there_once_and_the_semaphore_is_full() {
    let run = small("");
    assert_right(&run);
    assert_eq!(run.outcome["backend"], "sqlite");
    run.assert_numbers(&[
        ("files", 300),
        ("lines", 30_000),
        ("hours", 6),
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
}

#[test]
fn a_run_ends_however_often_processes_are_killed() {
    let run = small("--lease 100ms --kill-every 10ms");
    assert_right(&run);
    assert!(run.number("kills") > 5, "{run:?}");
}

/// Processes are repeatedly stopped for longer than their leases.
const PAUSES: &str = "--read-time 20ms --lease 300ms --pause-every 200ms --processes 4";

#[test]
fn stale_workers_are_stopped() {
    let run = until_some(&["stale_stopped"], PAUSES);
    assert_right(&run);
    assert!(run.number("pauses") > 1, "{run:?}");
}

#[test]
fn fences_stop_careless_workers_when_they_commit() {
    let run = until_some(&["stale_at_commit"], &format!("{PAUSES} --careless"));
    assert_right(&run);
}

#[test]
fn without_fences_harm_is_shown_and_is_no_failure() {
    let run = until_some(&["missing", "repeated"], &format!("{PAUSES} --unfenced"));
    run.assert_code(0);
    assert_eq!(run.outcome["fenced"], false);
}

/// The tests of `ingest` have the other ways in which a coordinator and its processes end.
#[test]
fn nodes_end_with_a_killed_coordinator_though_they_are_stopped() {
    let directory = TempDir::new().expect("a directory");
    // A killed run leaves its temporary files.
    let mut child = collate("--read-time 100ms")
        .env("TMPDIR", directory.path())
        .spawn()
        .expect("collate starts");
    let parts = || {
        let found = fs::read_dir(directory.path()).expect("the directory");
        let parts = found.filter_map(|entry| fs::read_dir(entry.ok()?.path().join("parts")).ok());
        parts.map(Iterator::count).sum::<usize>()
    };
    wait_until("nodes are at work", || parts() > 0);
    let nodes = children(child.id());
    assert_eq!(nodes.len(), 3);
    if cfg!(target_os = "linux") {
        signal(nodes[0], Signal::STOP);
    }
    signal(child.id(), Signal::KILL);
    child.wait().expect("collate ends");
    wait_until("all nodes have ended", || !any_alive(&nodes));
}
