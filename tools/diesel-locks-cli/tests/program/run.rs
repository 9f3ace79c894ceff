//! `run`, when nothing fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use program_support::testing::{Signal, TempDir, path_in, wait_until};

use crate::cli::{Cli, Running, on_engines, run_arguments};

on_engines!(
    exit_code_and_environment_are_those_of_the_command,
    second_command_is_refused_or_waits,
    slot_is_held_at_least_for_a_time,
    signals_are_passed_on,
    wait_for_a_slot_ends_by_a_signal,
    command_that_can_not_be_run_releases_the_slot,
);

fn exit_code_and_environment_are_those_of_the_command(url: &str) {
    let cli = Cli::new(url);
    let script =
        "echo $DIESEL_LOCKS_SEMAPHORE $DIESEL_LOCKS_SLOT $DIESEL_LOCKS_FENCE > $OUT/all; exit 7";
    let run = cli.run("nightly report", &[], script);
    let all = run.line("all");
    let fence = all.strip_prefix("nightly report 1 ").expect(&all);
    fence.parse::<i64>().expect("a fence");
    let (code, messages) = run.ended();
    assert_eq!((code, messages.as_str()), (Some(7), ""));
    assert!(cli.slots("nightly report").is_empty());
}

fn second_command_is_refused_or_waits(url: &str) {
    let cli = Cli::new(url);
    let first = cli.run(
        "jobs",
        &[],
        "echo > $OUT/begun; while ! [ -e $OUT/end ]; do sleep 0.02; done",
    );
    first.line("begun");
    let error = cli.refused(
        75,
        &["run", "--semaphore", "jobs", "--no-wait", "--", "true"],
    );
    assert!(
        error.contains("already held; `diesel-locks list slots` shows by whom they are held"),
        "{error}"
    );
    let error = cli.refused(
        75,
        &[
            "run",
            "--semaphore",
            "jobs",
            "--wait",
            "200ms",
            "--",
            "true",
        ],
    );
    assert!(
        error.contains("not acquired within") && error.contains("(limit 200 ms)"),
        "{error}"
    );
    // Another number of permits.
    cli.text(&[
        "run",
        "--semaphore",
        "jobs",
        "--permits",
        "2",
        "--no-wait",
        "--",
        "true",
    ]);
    let second = cli.run("jobs", &["--wait", "60s"], "echo > $OUT/begun");
    assert!(!second.file("begun").exists());
    fs::write(first.file("end"), "").expect("a file");
    assert_eq!(first.ended().0, Some(0));
    second.line("begun");
    assert_eq!(second.ended().0, Some(0));
}

fn slot_is_held_at_least_for_a_time(url: &str) {
    let cli = Cli::new(url);
    let kept = ["--lease", "1h", "--hold-at-least", "1h", "--no-wait"];
    let run = [&["run", "--semaphore", "jobs"], &kept[..], &["--", "true"]].concat();
    cli.text(&run);
    cli.refused(75, &run);
    let text = cli.text(&["list", "slots"]);
    assert!(
        text.contains("    released, with a minimum hold time: free 2"),
        "{text}"
    );
    let fence = cli.slots("jobs")[0]["fence"]
        .as_str()
        .expect("a fence")
        .to_owned();
    for command in ["release", "request-release"] {
        let error = cli.refused(1, &[command, "jobs", "1", "--fence", &fence]);
        assert!(error.contains("was released by its holder"), "{error}");
    }
    assert_eq!(cli.json(&["release-all", "jobs"])["released"], 1);
    cli.text(&run);
    let error = cli.refused(
        2,
        &[
            "run",
            "--semaphore",
            "a",
            "--hold-at-least",
            "2m",
            "--",
            "true",
        ],
    );
    assert!(
        error.contains("hold_at_least is longer than the lease"),
        "{error}"
    );
}

fn signals_are_passed_on(url: &str) {
    let cli = Cli::new(url);
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
    ] {
        let script =
            format!("trap 'exit 9' {name}; echo > $OUT/begun; while :; do sleep 0.02; done");
        let mut command = Command::new("env");
        // The tests may have been started with some that are ignored.
        command.args(cfg!(target_os = "linux").then_some("--default-signal"));
        let run = start_by(&mut command, &cli, &script);
        run.line("begun");
        run.signal(signal);
        let (code, messages) = run.ended();
        assert_eq!(code, Some(9), "{name}: {messages}");
    }
}

/// Those that `nohup` and, for a command in the background, a shell have ignored.
#[cfg(target_os = "linux")]
#[test]
fn ignored_signals_are_not_passed_on() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]);
    let script = "trap 'exit 9' TERM; echo > $OUT/begun; while :; do sleep 0.02; done";
    let run = start_by(&mut command, &cli, script);
    run.line("begun");
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        run.signal(signal);
    }
    assert_eq!(run.ended().0, Some(9));
}

/// Starts `run` by another program, which it replaces.
fn start_by(command: &mut Command, cli: &Cli, script: &str) -> Running {
    let command = command.arg(env!("CARGO_BIN_EXE_diesel-locks"));
    let command = command.args(run_arguments("jobs", &["--no-wait"], script));
    Running::start(command.env("DATABASE_URL", &cli.url).stdin(Stdio::null()))
}

fn wait_for_a_slot_ends_by_a_signal(url: &str) {
    let cli = Cli::new(url);
    cli.json(&["set-permits", "jobs", "0"]);
    let run = cli.run("jobs", &[], "echo > $OUT/begun");
    wait_until("signals are received", || receives_signals(run.id()));
    run.signal(Signal::TERM);
    let (code, messages) = run.ended();
    assert_eq!(code, Some(143), "{messages}");
    assert!(
        messages.contains("ended by signal 15 before the slot was acquired"),
        "{messages}"
    );
}

fn command_that_can_not_be_run_releases_the_slot(url: &str) {
    let cli = Cli::new(url);
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("script");
    fs::write(&file, "").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    let file = file.display().to_string();
    for (command, code) in [("no-such-command", 127), (file.as_str(), 126)] {
        let run = ["run", "--semaphore", "jobs", "--no-wait", "--", command];
        let error = cli.refused(code, &run);
        assert!(error.contains(&format!("can't run {command:?}")), "{error}");
    }
    assert!(cli.slots("jobs").is_empty());
}

/// Whether a process has a handler for SIGTERM. On other systems than Linux it is not known: it may end by the signal.
fn receives_signals(process: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else {
        return true;
    };
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .expect("a line");
    u64::from_str_radix(caught.trim(), 16).expect("a mask") & (1 << 14) != 0
}
