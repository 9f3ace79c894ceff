//! A shared lock that is upgraded by an UPDATE.

use anyhow::{Result, ensure};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use super::{FOR_UPDATE, select, update};
use crate::barrier::{Barrier, both};
use crate::runner::LessonRunner;
use crate::scenario::Scenario;
use crate::scenario::SessionName::{A, B};
use crate::store::Store;

pub(crate) fn run<C: Store>(runner: &mut LessonRunner<'_>) {
    runner.lesson("read with a shared lock, then update");
    runner.part::<C>("Both read shared", |scenario| {
        upgrade(scenario, "BEGIN", C::SHARED)
    });
    if C::SERIALIZABLE_READS_LOCK {
        runner.part::<C>("Both read plainly, at SERIALIZABLE", |scenario| {
            upgrade(scenario, &C::begin_at(IsolationLevel::Serializable), "")
        });
    }
    runner.part(
        "Remedy: read with the lock that the update needs",
        for_update::<C>,
    );
    runner.part("Remedy: run_transaction retries the victim", again::<C>);
}

fn upgrade<C: Store>(scenario: &mut Scenario<'_, C>, begin: &str, lock: &str) -> Result<String> {
    for session in [A, B] {
        scenario.expect_ok(session, begin)?;
    }
    for session in [A, B] {
        scenario.expect_value(session, &select(1, lock), 0)?;
    }
    scenario.expect_blocked(A, &update(1, 1))?;
    let victim = scenario.expect_deadlock(B, &update(1, 1))?;
    scenario.expect_ok(victim, "ROLLBACK")?;
    scenario.expect_ok(victim.other(), "COMMIT")?;
    scenario.expect_row(1, 1)?;
    Ok(format!(
        "a deadlock on a single row: {victim}'s transaction is rolled back"
    ))
}

fn for_update<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    for session in [A, B] {
        scenario.expect_ok(session, "BEGIN")?;
    }
    scenario.expect_value(A, &select(1, FOR_UPDATE), 0)?;
    scenario.expect_blocked(B, &select(1, FOR_UPDATE))?;
    scenario.expect_ok(A, &update(1, 1))?;
    scenario.expect_ok(A, "COMMIT")?;
    scenario.expect_unblocked_value(B, 1)?;
    scenario.expect_ok(B, &update(1, 2))?;
    scenario.expect_ok(B, "COMMIT")?;
    scenario.expect_row(1, 2)?;
    Ok("no session fails, no update is lost: B waits before it reads".to_owned())
}

fn again<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    let both_have_read = Barrier::default();
    let transaction = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    let attempts = both(scenario.url, |conn: &mut C, _| {
        let mut attempts = 0;
        conn.run_transaction(transaction, |conn| {
            attempts += 1;
            let n = conn.number(&select(1, C::SHARED))?;
            if attempts == 1 {
                both_have_read.wait();
            }
            conn.run(&update(1, n + 1))?;
            Ok::<_, Error>(attempts)
        })
    })?;
    scenario.print_attempts("reads shared and updates", attempts);
    ensure!(
        attempts.contains(&1),
        "no session succeeded at its first attempt"
    );
    ensure!(attempts != [1, 1], "no session was retried");
    scenario.expect_row(1, 2)?;
    Ok("n is 2: no update is lost; the victim ran twice".to_owned())
}
