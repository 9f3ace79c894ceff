//! A transaction that fails at COMMIT, where reads see a snapshot at SERIALIZABLE (PostgreSQL).

use anyhow::{Result, bail, ensure};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use super::{select, update};
use crate::barrier::{Barrier, both};
use crate::runner::LessonRunner;
use crate::scenario::Scenario;
use crate::scenario::SessionName::{A, B};
use crate::store::Store;

pub(crate) fn run<C: Store>(runner: &mut LessonRunner<'_>) {
    runner.lesson("each session reads what the other writes, at SERIALIZABLE");
    runner.part("No session waits, and all statements succeed", skew::<C>);
    runner.part("Remedy: run_transaction retries it", again::<C>);
}

fn skew<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    for session in [A, B] {
        scenario.expect_ok(session, &C::begin_at(IsolationLevel::Serializable))?;
    }
    scenario.expect_value(A, &select(2, ""), 0)?;
    scenario.expect_value(B, &select(1, ""), 0)?;
    scenario.expect_ok(A, &update(1, 1))?;
    scenario.expect_ok(B, &update(2, 1))?;
    scenario.expect_ok(A, "COMMIT")?;
    match scenario.execute(B, "COMMIT")? {
        Err(error) if error.is_serialization_failure() => {}
        Err(error) => bail!(error),
        Ok(_) => bail!("B did not fail"),
    }
    scenario.expect_row(2, 0)?;
    Ok("COMMIT fails, though all statements before it succeeded".to_owned())
}

fn again<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    let both_have_read = Barrier::default();
    let transaction = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .retry(RetryPolicy::max_attempts(5));
    let attempts = both(scenario.url, |conn: &mut C, session| {
        let (read, write) = if session == A { (2, 1) } else { (1, 2) };
        let mut attempts = 0;
        conn.run_transaction(transaction, |conn| {
            attempts += 1;
            let n = conn.number(&select(read, ""))?;
            if attempts == 1 {
                both_have_read.wait();
            }
            conn.run(&update(write, n + 1))?;
            Ok::<_, Error>(attempts)
        })
    })?;
    scenario.print_attempts("writes one more than the other row", attempts);
    ensure!(attempts != [1, 1], "no session failed");
    let mut n = [scenario.n(1)?, scenario.n(2)?];
    n.sort_unstable();
    ensure!(n == [1, 2], "the rows are {n:?}, not 1 and 2");
    Ok("the result is that of one transaction after the other".to_owned())
}
