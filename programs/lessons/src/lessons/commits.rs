//! A transaction that fails at COMMIT, where reads see a snapshot at SERIALIZABLE (PostgreSQL).

use anyhow::{Result, bail, ensure};
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::{select, update};
use crate::meeting::{Meeting, both};
use crate::play::Play;
use crate::stage::Stage;
use crate::stage::Who::{A, B};
use crate::store::Store;

pub(crate) fn play<C: Store>(play: &mut Play<'_>) {
    play.lesson("each reads what the other writes, at SERIALIZABLE");
    play.part("Nobody waits, and all statements succeed", skew::<C>);
    play.part("Remedy: run_transaction tries it again", again::<C>);
}

fn skew<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.does(who, &C::begin_at(IsolationLevel::Serializable))?;
    }
    stage.reads(A, &select(2, ""), 0)?;
    stage.reads(B, &select(1, ""), 0)?;
    stage.does(A, &update(1, 1))?;
    stage.does(B, &update(2, 1))?;
    stage.does(A, "COMMIT")?;
    match stage.tries(B, "COMMIT")? {
        Err(error) if error.is_serialization_failure() => {}
        Err(error) => bail!(error),
        Ok(_) => bail!("B did not fail"),
    }
    stage.ends_with(2, 0)?;
    Ok("COMMIT failed: before it B had nothing in its hands".to_owned())
}

fn again<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    let both_have_read = Meeting::default();
    let transaction = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .retry(RetryPolicy::max_attempts(5));
    let attempts = both(stage.url, |conn: &mut C, who| {
        let (read, write) = if who == A { (2, 1) } else { (1, 2) };
        conn.run_transaction_attempts(transaction, |conn, attempt| {
            let n = conn.number(&select(read, ""))?;
            if attempt == 1 {
                both_have_read.wait();
            }
            conn.run(&update(write, n + 1))?;
            Ok::<_, Error>(attempt)
        })
    })?;
    for (who, attempts) in [A, B].into_iter().zip(attempts) {
        let what = "writes one more than the other row";
        stage.print(who, what, &format!("attempts: {attempts}"));
    }
    ensure!(attempts != [1, 1], "nobody failed");
    let mut n = [stage.n(1)?, stage.n(2)?];
    n.sort_unstable();
    ensure!(n == [1, 2], "the rows are {n:?}, not 1 and 2");
    Ok("as if one had come after the other".to_owned())
}
