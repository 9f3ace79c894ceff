//! The lessons for databases with one writer (SQLite).

use anyhow::Result;
use diesel_locks::prelude::*;

use crate::LessonRunner;
use crate::scenario::Expected::{Busy, Done, Reads};
use crate::scenario::{Meet, Scenario};
use crate::session::SessionName::{A, B};
use crate::session::{select, update};

pub(crate) fn run(runner: &mut LessonRunner<'_>) {
    runner.lesson("begin by reading, then update");
    runner.part("Both read in a plain BEGIN", upgrade);
    runner.part("Remedy: BEGIN IMMEDIATE", immediate);
    runner.part(
        "Remedy: run_transaction, which begins with BEGIN IMMEDIATE",
        waiting,
    );
    runner.lesson("read and update without a transaction");
    runner.part("Each statement by itself", lost);
    runner.part("Remedy: let the database compute", computed);
    LessonRunner::note("or read in BEGIN IMMEDIATE, as in lesson 1");
}

fn upgrade(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.both_begin("BEGIN")?;
    for session in [A, B] {
        scenario.step(session, &select(1, ""), Reads(0))?;
    }
    scenario.step(A, &update(1, 1), Done)?;
    scenario.step(B, &update(1, 1), Busy)?;
    scenario.step(B, "ROLLBACK", Done)?;
    scenario.step(A, "COMMIT", Done)?;
    scenario.expect_row(1, 1)?;
    Ok(
        "B fails at once, whatever its busy_timeout: A's commit makes what B has read out of date"
            .to_owned(),
    )
}

fn immediate(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.step(B, "PRAGMA busy_timeout = 0", Done)?;
    scenario.step(A, "BEGIN IMMEDIATE", Done)?;
    scenario.step(B, "BEGIN IMMEDIATE", Busy)?;
    scenario.step(A, &select(1, ""), Reads(0))?;
    scenario.step(A, &update(1, 1), Done)?;
    scenario.step(A, "COMMIT", Done)?;
    scenario.step(B, "BEGIN IMMEDIATE", Done)?;
    scenario.step(B, &select(1, ""), Reads(1))?;
    scenario.step(B, &update(1, 2), Done)?;
    scenario.step(B, "COMMIT", Done)?;
    scenario.expect_row(1, 2)?;
    Ok("B fails before it has read; with a busy_timeout it waits".to_owned())
}

fn waiting(scenario: &mut Scenario<'_>) -> Result<String> {
    let rows = [(1, 1), (1, 1)];
    scenario.both_add_one(TransactionOptions::new(), rows, "", Meet::Before)?;
    scenario.expect_row(1, 2)?;
    Ok("the second session waits, at most for its busy_timeout, and reads what the first one wrote".to_owned())
}

fn lost(scenario: &mut Scenario<'_>) -> Result<String> {
    for session in [A, B] {
        scenario.step(session, &select(1, ""), Reads(0))?;
    }
    for session in [A, B] {
        scenario.step(session, &update(1, 1), Done)?;
    }
    scenario.expect_row(1, 1)?;
    Ok("two updates, but n is 1: one update is lost, without an error".to_owned())
}

fn computed(scenario: &mut Scenario<'_>) -> Result<String> {
    for session in [A, B] {
        scenario.step(session, "UPDATE lessons SET n = n + 1 WHERE id = 1", Done)?;
    }
    scenario.expect_row(1, 2)?;
    Ok("n is 2: no update is lost".to_owned())
}
