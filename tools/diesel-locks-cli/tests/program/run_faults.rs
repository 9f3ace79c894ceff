//! `run`, when a lease is lost or a process is killed.

use std::fs;

use program_support::testing::{Signal, any_alive, signal, wait_until};

use crate::cli::{Cli, Running, on_engines};

on_engines!(
    slot_that_is_released_by_force_ends_the_command,
    lost_lease_ends_a_command_whose_messages_nobody_reads,
    command_that_ignores_sigterm_is_killed,
    processes_of_the_command_that_ignore_sigterm_are_killed,
    slot_is_held_until_all_processes_of_an_ended_command_have_ended,
    process_in_the_background_of_a_command_that_ends_by_itself_is_left,
    killed_run_frees_the_slot_when_its_lease_ends,
    stopped_run_ends_the_command_when_it_continues,
    killed_command_releases_the_slot,
    stopped_command_is_ended_by_a_signal,
);

/// Writes its process id, and ends by SIGTERM.
const WORK: &str =
    "trap 'echo > $OUT/ended; exit 3' TERM; echo $$ > $OUT/process; while :; do sleep 0.02; done";

/// Ignores SIGTERM, and ends when there is a file. Standard error would be open as long.
const WORKER: &str = "(trap '' TERM; exec sh -c 'echo $$ > $OUT/process; \
     while [ -e $OUT ] && ! [ -e $OUT/end ]; do sleep 0.02; done') 2> /dev/null";

fn process(run: &Running) -> u32 {
    run.line("process").parse().expect("a process")
}

fn release_by_force(cli: &Cli) {
    assert_eq!(cli.json(&["release-all", "jobs"])["released"], 1);
}

fn slot_that_is_released_by_force_ends_the_command(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--lease", "2s"], WORK);
    process(&run);
    release_by_force(&cli);
    run.line("ended");
    let (code, messages) = run.ended();
    assert_eq!(code, Some(76), "{messages}");
    assert!(
        messages.contains("the lease of jobs is lost: the command gets SIGTERM"),
        "{messages}"
    );
}

fn lost_lease_ends_a_command_whose_messages_nobody_reads(url: &str) {
    let cli = Cli::new(url);
    // The shell writes there which child was ended by a signal, and would be ended by SIGPIPE.
    let script = format!("exec 2> /dev/null; {WORK}");
    let mut run = cli.run("jobs", &["--lease", "2s"], &script);
    run.stop_reading();
    process(&run);
    release_by_force(&cli);
    run.line("ended");
    assert_eq!(run.ended().0, Some(76));
}

fn command_that_ignores_sigterm_is_killed(url: &str) {
    let cli = Cli::new(url);
    let script = "trap '' TERM; echo $$ > $OUT/process; while :; do sleep 0.02; done";
    let run = cli.run("jobs", &["--lease", "2s", "--kill-after", "300ms"], script);
    let process = process(&run);
    release_by_force(&cli);
    let (code, messages) = run.ended();
    assert_eq!(code, Some(76), "{messages}");
    assert!(messages.contains("it gets SIGKILL"), "{messages}");
    assert!(!any_alive(&[process]));
}

fn processes_of_the_command_that_ignore_sigterm_are_killed(url: &str) {
    let cli = Cli::new(url);
    let script = format!("{WORKER}; true");
    let options = ["--lease", "2s", "--kill-after", "300ms"];
    let run = cli.run("jobs", &options, &script);
    let process = process(&run);
    release_by_force(&cli);
    let (code, messages) = run.ended();
    assert!(!any_alive(&[process]));
    assert_eq!(code, Some(76), "{messages}");
    assert!(messages.contains("it gets SIGKILL"), "{messages}");
}

fn slot_is_held_until_all_processes_of_an_ended_command_have_ended(url: &str) {
    let cli = Cli::new(url);
    let script = format!("echo $$ $DIESEL_LOCKS_FENCE > $OUT/first; {WORKER}; true");
    for is_requested in [true, false] {
        let run = cli.run("jobs", &["--lease", "2s"], &script);
        let worker = process(&run);
        let first = run.line("first");
        let (first, fence) = first.split_once(' ').expect("two numbers");
        let first = first.parse().expect("a process");
        if is_requested {
            cli.text(&["request-release", "jobs", "1", "--fence", fence]);
        } else {
            run.signal(Signal::TERM);
        }
        wait_until("the first has ended", || !any_alive(&[first]));
        for _ in 0..2 {
            let before = expiry(&cli);
            wait_until("the lease is renewed", || expiry(&cli) > before);
        }
        assert!(any_alive(&[worker]));
        fs::write(run.file("end"), "").expect("a file");
        let (code, messages) = run.ended();
        assert_eq!(code, Some(143), "{messages}");
        assert!(!any_alive(&[worker]));
        assert!(cli.slots("jobs").is_empty());
    }
}

fn process_in_the_background_of_a_command_that_ends_by_itself_is_left(url: &str) {
    let cli = Cli::new(url);
    let script = format!("{WORKER} & while ! [ -s $OUT/process ]; do sleep 0.02; done; exit 7");
    let run = cli.run("jobs", &["--lease", "1h"], &script);
    let process = process(&run);
    let free = ["run", "--semaphore", "jobs", "--wait", "60s", "--", "true"];
    cli.text(&free);
    assert!(any_alive(&[process]));
    assert_eq!(run.ended(), (Some(7), String::new()));
}

/// When the lease of the held slot ends.
fn expiry(cli: &Cli) -> String {
    cli.slots("jobs")[0]["expires_at"]
        .as_str()
        .expect("a time")
        .to_owned()
}

fn killed_run_frees_the_slot_when_its_lease_ends(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--lease", "5s"], WORK);
    let process = process(&run);
    run.signal(Signal::KILL);
    // Without it the slot is held, and with its end free.
    assert_eq!(cli.slots("jobs").len(), 1);
    if cfg!(target_os = "linux") {
        run.line("ended");
        wait_until("the command has ended", || !any_alive(&[process]));
    } else {
        signal(process, Signal::TERM);
    }
    cli.text(&["run", "--semaphore", "jobs", "--wait", "60s", "--", "true"]);
}

fn stopped_run_ends_the_command_when_it_continues(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--lease", "1s"], WORK);
    process(&run);
    run.signal(Signal::STOP);
    // The command is not stopped. Another holder gets the slot when the lease has ended.
    cli.text(&["run", "--semaphore", "jobs", "--wait", "60s", "--", "true"]);
    assert!(!run.file("ended").exists());
    run.signal(Signal::CONT);
    run.line("ended");
    let (code, messages) = run.ended();
    assert_eq!(code, Some(76), "{messages}");
}

fn killed_command_releases_the_slot(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--lease", "1h"], WORK);
    signal(process(&run), Signal::KILL);
    let (code, messages) = run.ended();
    assert_eq!((code, messages.as_str()), (Some(137), ""));
    assert!(cli.slots("jobs").is_empty());
}

fn stopped_command_is_ended_by_a_signal(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &[], WORK);
    signal(process(&run), Signal::STOP);
    run.signal(Signal::TERM);
    run.line("ended");
    assert_eq!(run.ended().0, Some(3));
}

/// Renewals keep the slot for longer than the lease.
#[test]
fn lease_is_renewed_while_the_command_runs() {
    let directory = program_support::testing::TempDir::new().expect("a directory");
    let cli = Cli::new(&program_support::testing::path_in(&directory, "app.db"));
    let run = cli.run("jobs", &["--lease", "1s"], WORK);
    process(&run);
    for _ in 0..3 {
        let before = expiry(&cli);
        wait_until("the lease is renewed", || expiry(&cli) > before);
    }
    run.signal(Signal::TERM);
    assert_eq!(run.ended().0, Some(3));
}
