//! A shared lock that is upgraded by an UPDATE.

use anyhow::{Result, ensure};
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::{FOR_UPDATE, select, update};
use crate::meeting::{Meeting, both};
use crate::play::Play;
use crate::stage::Stage;
use crate::stage::Who::{A, B};
use crate::store::Store;

pub(crate) fn play<C: Store>(play: &mut Play<'_>) {
    play.lesson("read with a shared lock, then update");
    play.part::<C>("Both read shared", |stage| {
        upgrade(stage, "BEGIN", C::SHARED)
    });
    if C::SERIALIZABLE_READS_LOCK {
        play.part::<C>("Both read plainly, at SERIALIZABLE", |stage| {
            upgrade(stage, &C::begin_at(IsolationLevel::Serializable), "")
        });
    }
    play.part(
        "Remedy: read with the lock that the update needs",
        for_update::<C>,
    );
    play.part("Remedy: run_transaction tries the victim again", again::<C>);
}

fn upgrade<C: Store>(stage: &mut Stage<'_, C>, begin: &str, lock: &str) -> Result<String> {
    for who in [A, B] {
        stage.does(who, begin)?;
    }
    for who in [A, B] {
        stage.reads(who, &select(1, lock), 0)?;
    }
    stage.waits(A, &update(1, 1))?;
    let victim = stage.clashes(B, &update(1, 1))?;
    stage.does(victim, "ROLLBACK")?;
    stage.does(victim.other(), "COMMIT")?;
    stage.ends_with(1, 1)?;
    Ok(format!(
        "one row, one order, and {victim}'s work is gone all the same"
    ))
}

fn for_update<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.does(who, "BEGIN")?;
    }
    stage.reads(A, &select(1, FOR_UPDATE), 0)?;
    stage.waits(B, &select(1, FOR_UPDATE))?;
    stage.does(A, &update(1, 1))?;
    stage.does(A, "COMMIT")?;
    stage.goes_on_and_reads(B, 1)?;
    stage.does(B, &update(1, 2))?;
    stage.does(B, "COMMIT")?;
    stage.ends_with(1, 2)?;
    Ok("nobody fails, nothing is lost: B waited before it read".to_owned())
}

fn again<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    let both_have_read = Meeting::default();
    let transaction = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    let attempts = both(stage.url, |conn: &mut C, _| {
        conn.run_transaction_attempts(transaction, |conn, attempt| {
            let n = conn.number(&select(1, C::SHARED))?;
            if attempt == 1 {
                both_have_read.wait();
            }
            conn.run(&update(1, n + 1))?;
            Ok::<_, Error>(attempt)
        })
    })?;
    for (who, attempts) in [A, B].into_iter().zip(attempts) {
        stage.print(
            who,
            "reads shared and updates",
            &format!("attempts: {attempts}"),
        );
    }
    ensure!(attempts.contains(&1), "nobody has succeeded the first time");
    ensure!(attempts != [1, 1], "there was no victim");
    stage.ends_with(1, 2)?;
    Ok("both updates are there; the victim did its work twice".to_owned())
}
