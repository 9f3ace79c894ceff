//! The lessons for databases with one writer (SQLite).

use anyhow::{Result, ensure};
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::{select, update};
use crate::meeting::{Meeting, both};
use crate::play::Play;
use crate::stage::Who::{A, B};
use crate::stage::{Stage, Who};
use crate::store::Store;

pub(crate) fn play<C: Store>(play: &mut Play<'_>) {
    play.lesson("begin by reading, then update");
    play.part("Both read in a plain BEGIN", upgrade::<C>);
    play.part("Remedy: BEGIN IMMEDIATE", immediate::<C>);
    play.part("Remedy: run_transaction, which begins so", waiting::<C>);
    play.lesson("read and update without a transaction");
    play.part("Each statement by itself", lost::<C>);
    play.part("Remedy: let the database compute", computed::<C>);
    println!("      (or read in BEGIN IMMEDIATE, as in lesson 1)");
}

/// Runs a statement that is refused the write lock without waiting for it.
fn is_refused<C: Store>(stage: &mut Stage<'_, C>, who: Who, sql: &str) -> Result<()> {
    let answer = stage.tries(who, sql)?;
    ensure!(
        answer.is_err_and(|error| error.is_timeout()),
        "{who} was not told that another writes"
    );
    Ok(())
}

fn upgrade<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.does(who, "BEGIN")?;
    }
    for who in [A, B] {
        stage.reads(who, &select(1, ""), 0)?;
    }
    stage.does(A, &update(1, 1))?;
    is_refused(stage, B, &update(1, 1))?;
    stage.does(B, "ROLLBACK")?;
    stage.does(A, "COMMIT")?;
    stage.ends_with(1, 1)?;
    Ok(
        "B was refused at once, whatever its busy_timeout: what it had read was to become old"
            .to_owned(),
    )
}

fn immediate<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    stage.does(B, "PRAGMA busy_timeout = 0")?;
    stage.does(A, "BEGIN IMMEDIATE")?;
    is_refused(stage, B, "BEGIN IMMEDIATE")?;
    stage.reads(A, &select(1, ""), 0)?;
    stage.does(A, &update(1, 1))?;
    stage.does(A, "COMMIT")?;
    stage.does(B, "BEGIN IMMEDIATE")?;
    stage.reads(B, &select(1, ""), 1)?;
    stage.does(B, &update(1, 2))?;
    stage.does(B, "COMMIT")?;
    stage.ends_with(1, 2)?;
    Ok("B is refused before it has read; with a busy_timeout it would have waited".to_owned())
}

fn waiting<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    let start = Meeting::default();
    let attempts = both(stage.url, |conn: &mut C, _| {
        start.wait();
        conn.run_transaction_attempts(TransactionOptions::new(), |conn, attempt| {
            let n = conn.number(&select(1, ""))?;
            conn.run(&update(1, n + 1))?;
            Ok::<_, Error>(attempt)
        })
    })?;
    for (who, attempts) in [A, B].into_iter().zip(attempts) {
        stage.print(who, "reads and updates", &format!("attempts: {attempts}"));
    }
    stage.ends_with(1, 2)?;
    Ok("whoever came second waited for its busy_timeout at most, and read what the first had written".to_owned())
}

fn lost<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.reads(who, &select(1, ""), 0)?;
    }
    for who in [A, B] {
        stage.does(who, &update(1, 1))?;
    }
    stage.ends_with(1, 1)?;
    Ok("two updates, n is 1: one is lost, and nobody was told".to_owned())
}

fn computed<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.does(who, "UPDATE lessons SET n = n + 1 WHERE id = 1")?;
    }
    stage.ends_with(1, 2)?;
    Ok("both updates are there".to_owned())
}
