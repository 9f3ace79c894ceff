//! Processes of `scale` wait in turn, and hand over the slot.

use std::process::Command;

use program_support::on_servers;
use program_support::outcome::Value;
use program_support::testing::Run;

#[test]
fn slot_is_handed_over_on_sqlite() {
    assert_handed_over(&[]);
}

fn slot_is_handed_over(url: &str) {
    assert_handed_over(&["--database-url", url]);
}

/// The outcome of a run of 3 processes.
fn run(arguments: &[&str], code: i32) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_scale"))
        .args(["--processes", "3", "--json"])
        .args(arguments)
        .output()
        .expect("scale starts");
    let run = Run::from(output);
    assert_eq!(run.code, Some(code), "{}", run.messages);
    run.outcome
}

fn assert_positive(outcome: &Value, figures: &[&str]) {
    for figure in figures {
        let value = outcome[figure].as_f64().expect("a number");
        assert!(value > 0.0, "{figure}: {outcome}");
    }
}

fn assert_handed_over(database: &[&str]) {
    let scenario = ["--hold-ms", "50", "--seconds", "5", "--at-most-s", "1"];
    let measured = [&["--measure", "--within", "1000000"], database].concat();
    for outcome in [
        run(&[&scenario, measured.as_slice()].concat(), 0),
        run(&scenario, 0),
    ] {
        let figures = ["handovers", "statements_per_second", "handover_ms_median"];
        assert_positive(&outcome, &figures);
    }
}

#[test]
fn leases_are_renewed_on_sqlite() {
    assert_renewed(&[]);
}

fn leases_are_renewed(url: &str) {
    assert_renewed(&["--database-url", url]);
}

on_servers!(slot_is_handed_over, leases_are_renewed);

/// No figures differ by a factor of 0 at most: the run fails.
fn assert_renewed(database: &[&str]) {
    let scenario = ["--renewing-s", "9", "--seconds", "8"];
    let measured = ["--measure", "--within", "0"];
    let outcome = run(&[&scenario, measured.as_slice(), database].concat(), 1);
    let figures = ["statements_per_second", "statements_per_second_simulated"];
    assert_positive(&outcome, &figures);
}
