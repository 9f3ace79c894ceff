//! The lessons for databases with one writer (SQLite).

use anyhow::{Result, ensure};
use diesel_locks::Error;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;

use crate::LessonRunner;
use crate::scenario::Scenario;
use crate::session::SessionName::{self, A, B};
use crate::session::{both, number, run_statement, select, update};

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

/// Runs a statement that is refused the write lock without waiting for it.
fn expect_busy(scenario: &mut Scenario<'_>, session: SessionName, sql: &str) -> Result<()> {
    let answer = scenario.execute(session, sql)?;
    ensure!(
        answer.is_err_and(|error| error.is_timeout()),
        "{session} did not get SQLITE_BUSY"
    );
    Ok(())
}

fn upgrade(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.both_begin()?;
    for session in [A, B] {
        scenario.expect_value(session, &select(1, ""), 0)?;
    }
    scenario.expect_ok(A, &update(1, 1))?;
    expect_busy(scenario, B, &update(1, 1))?;
    scenario.expect_ok(B, "ROLLBACK")?;
    scenario.expect_ok(A, "COMMIT")?;
    scenario.expect_row(1, 1)?;
    Ok(
        "B fails at once, whatever its busy_timeout: A's commit makes what B has read out of date"
            .to_owned(),
    )
}

fn immediate(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.expect_ok(B, "PRAGMA busy_timeout = 0")?;
    scenario.expect_ok(A, "BEGIN IMMEDIATE")?;
    expect_busy(scenario, B, "BEGIN IMMEDIATE")?;
    scenario.expect_value(A, &select(1, ""), 0)?;
    scenario.expect_ok(A, &update(1, 1))?;
    scenario.expect_ok(A, "COMMIT")?;
    scenario.expect_ok(B, "BEGIN IMMEDIATE")?;
    scenario.expect_value(B, &select(1, ""), 1)?;
    scenario.expect_ok(B, &update(1, 2))?;
    scenario.expect_ok(B, "COMMIT")?;
    scenario.expect_row(1, 2)?;
    Ok("B fails before it has read; with a busy_timeout it waits".to_owned())
}

fn waiting(scenario: &mut Scenario<'_>) -> Result<String> {
    let attempts = both(
        scenario.database,
        |conn: &mut AnyConnection, _, mut start| {
            start.wait();
            let mut attempts = 0;
            conn.run_transaction(TransactionOptions::new(), |conn| {
                attempts += 1;
                let n = number(conn, &select(1, ""))?;
                run_statement(conn, &update(1, n + 1))?;
                Ok::<_, Error>(attempts)
            })
        },
    )?;
    scenario.print_attempts("reads and updates", attempts);
    scenario.expect_row(1, 2)?;
    Ok("the second session waits, at most for its busy_timeout, and reads what the first one wrote".to_owned())
}

fn lost(scenario: &mut Scenario<'_>) -> Result<String> {
    for session in [A, B] {
        scenario.expect_value(session, &select(1, ""), 0)?;
    }
    for session in [A, B] {
        scenario.expect_ok(session, &update(1, 1))?;
    }
    scenario.expect_row(1, 1)?;
    Ok("two updates, but n is 1: one update is lost, without an error".to_owned())
}

fn computed(scenario: &mut Scenario<'_>) -> Result<String> {
    for session in [A, B] {
        scenario.expect_ok(session, "UPDATE lessons SET n = n + 1 WHERE id = 1")?;
    }
    scenario.expect_row(1, 2)?;
    Ok("n is 2: no update is lost".to_owned())
}
