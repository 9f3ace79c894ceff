//! The commands that change something.

use program_support::testing::wait_until;

use crate::cli::{Cli, on_engines};

on_engines!(
    slot_is_released_by_its_fence_only,
    all_slots_are_released,
    requested_release_ends_a_command,
    number_of_permits_is_set,
    unused_slots_are_purged,
    fences_are_raised,
);

const LONG: &str = "echo $DIESEL_LOCKS_FENCE > $OUT/fence; exec sleep 600";

fn slot_is_released_by_its_fence_only(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--holder", "node-2"], LONG);
    let fence = run.line("fence");
    let error = cli.refused(1, &["release", "jobs", "1", "--fence", "17"]);
    let expected = format!(
        "slot 1 of jobs has the fence {fence} by now, and not 17; node-2 holds it: nothing was done"
    );
    assert_eq!(error, expected);
    assert_eq!(cli.slots("jobs").len(), 1);
    let released = cli.json(&["release", "jobs", "1", "--fence", &fence]);
    assert_eq!(
        (&released["fence"], &released["holder"]),
        (&fence.as_str().into(), &"node-2".into())
    );
    let error = cli.refused(1, &["release", "jobs", "1", "--fence", &fence]);
    assert_eq!(error, "slot 1 of jobs is not held: nothing was done");
    let error = cli.refused(1, &["release", "no  job", "1", "--fence", &fence]);
    assert!(
        error.starts_with("there is no semaphore \"no  job\""),
        "{error}"
    );
    let error = cli.refused(2, &["release", &"x".repeat(256), "1", "--fence", "1"]);
    assert!(
        error.contains("at most 255 characters; this one has 256"),
        "{error}"
    );
}

fn all_slots_are_released(url: &str) {
    let cli = Cli::new(url);
    let two = ["--permits", "2"];
    let runs = [cli.run("jobs", &two, LONG), cli.run("jobs", &two, LONG)];
    for run in &runs {
        run.line("fence");
    }
    assert_eq!(
        cli.text(&["release-all", "jobs"]),
        "released 2 slots of jobs\n"
    );
    assert_eq!(cli.json(&["release-all", "jobs"])["released"], 0);
    let error = cli.refused(1, &["release-all", "job"]);
    assert!(
        error.starts_with("there is no semaphore \"job\""),
        "{error}"
    );
}

fn requested_release_ends_a_command(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--lease", "2s"], LONG);
    let fence = run.line("fence");
    let error = cli.refused(1, &["request-release", "jobs", "1", "--fence", "17"]);
    assert!(error.contains("has the fence"), "{error}");
    let text = cli.text(&["request-release", "jobs", "1", "--fence", &fence]);
    assert!(
        text.starts_with("requested the release of slot 1 of jobs from "),
        "{text}"
    );
    let (code, messages) = run.ended();
    // 128 + SIGTERM of the command: the lease was not lost.
    assert_eq!(code, Some(143), "{messages}");
    assert!(
        messages.contains("an operator requests the slot"),
        "{messages}"
    );
    assert!(cli.slots("jobs").is_empty());
}

fn number_of_permits_is_set(url: &str) {
    let cli = Cli::new(url);
    assert_eq!(
        cli.text(&["set-permits", "jobs", "2"]),
        "jobs: 2 permits (a new semaphore)\n"
    );
    assert_eq!(
        cli.text(&["set-permits", "jobs", "0"]),
        "jobs: 0 permits (before: 2)\n"
    );
    let error = cli.refused(
        75,
        &["run", "--semaphore", "jobs", "--no-wait", "--", "true"],
    );
    assert!(
        error.contains("`list semaphores` whether it is paused"),
        "{error}"
    );
    let set = cli.json(&["set-permits", "jobs", "1"]);
    assert_eq!(
        (&set["permits"], &set["permits_before"], &set["created"]),
        (&1.into(), &0.into(), &false.into())
    );
    cli.text(&["run", "--semaphore", "jobs", "--no-wait", "--", "true"]);
    let output = cli.output(&["set-permits", "jobs", "100001"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("100001 is not in 0..=100000"), "{error}");
}

fn unused_slots_are_purged(url: &str) {
    let cli = Cli::new(url);
    cli.text(&["run", "--semaphore", "jobs", "--", "true"]);
    assert_eq!(cli.json(&["purge"])["slots"], 0);
    // A slot that was released this moment may count as used.
    wait_until("the slot is purged", || {
        cli.json(&["purge", "--older-than", "0s"])["slots"] == 1
    });
    assert!(
        cli.text(&["list", "semaphores"])
            .contains("Semaphores: none")
    );
    assert_eq!(
        cli.text(&["purge", "--objects"]),
        "removed 0 slots and 0 kept objects\n"
    );
}

fn fences_are_raised(url: &str) {
    let cli = Cli::new(url);
    let raised: i64 = cli.json(&["raise-fences", "--by", "2h"])["fence"]
        .as_str()
        .expect("a text")
        .parse()
        .expect("a number");
    let run = cli.run("jobs", &[], LONG);
    let fence: i64 = run.line("fence").parse().expect("a number");
    assert!(fence > raised, "{fence}, {raised}");
    let error = cli.refused(2, &["raise-fences", "--by", "200years"]);
    assert!(error.contains("year 2100"), "{error}");
}
