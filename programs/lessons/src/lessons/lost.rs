//! Updates that are lost without an error.

use anyhow::{Result, bail, ensure};
use diesel_locks::prelude::*;

use super::{select, update};
use crate::play::Play;
use crate::stage::Stage;
use crate::stage::Who::{A, B};
use crate::store::Store;

pub(crate) fn play<C: Store>(play: &mut Play<'_>) {
    play.lesson("read plainly, then update");
    play.part::<C>("At READ COMMITTED", |stage| {
        ensure!(old_read(stage, IsolationLevel::ReadCommitted)?, "B failed");
        Ok("two updates, n is 1: one is lost, and nobody was told".to_owned())
    });
    play.part("At REPEATABLE READ", repeatable_read::<C>);
    play.part("Remedy: let the database compute", computed::<C>);
    println!("      (or read FOR UPDATE, as in lesson 1)");
}

/// Both read 0 and write 1, one after the other. Returns whether B's update succeeds.
fn old_read<C: Store>(stage: &mut Stage<'_, C>, level: IsolationLevel) -> Result<bool> {
    for who in [A, B] {
        stage.does(who, &C::begin_at(level))?;
    }
    for who in [A, B] {
        stage.reads(who, &select(1, ""), 0)?;
    }
    stage.does(A, &update(1, 1))?;
    stage.does(A, "COMMIT")?;
    let succeeds = match stage.tries(B, &update(1, 1))? {
        Ok(_) => true,
        Err(error) if error.is_serialization_failure() => false,
        Err(error) => bail!(error),
    };
    stage.does(B, if succeeds { "COMMIT" } else { "ROLLBACK" })?;
    stage.ends_with(1, 1)?;
    Ok(succeeds)
}

/// MariaDB refuses the update with `innodb_snapshot_isolation`, the default in newer versions.
fn repeatable_read<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    let is_innodb = C::SERIALIZABLE_READS_LOCK;
    if old_read(stage, IsolationLevel::RepeatableRead)? {
        ensure!(is_innodb, "B did not fail");
        return Ok("InnoDB loses it at this level too".to_owned());
    }
    Ok("what B has read is old, and it is told so: run_transaction tries it again".to_owned())
}

fn computed<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    let one_more = "UPDATE lessons SET n = n + 1 WHERE id = 1";
    for who in [A, B] {
        stage.does(who, &C::begin_at(IsolationLevel::ReadCommitted))?;
    }
    stage.does(A, one_more)?;
    stage.waits(B, one_more)?;
    stage.does(A, "COMMIT")?;
    stage.goes_on(B)?;
    stage.does(B, "COMMIT")?;
    stage.ends_with(1, 2)?;
    Ok("both updates are there".to_owned())
}
