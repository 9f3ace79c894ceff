//! Updates that are lost without an error.

use anyhow::{Result, bail, ensure};
use diesel_locks::IsolationLevel;

use super::{select, update};
use crate::runner::LessonRunner;
use crate::scenario::Scenario;
use crate::scenario::SessionName::{A, B};
use crate::store::Store;

pub(crate) fn run<C: Store>(runner: &mut LessonRunner<'_>) {
    runner.lesson("read plainly, then update");
    runner.part::<C>("Both read 0 and write 1, at READ COMMITTED", |scenario| {
        ensure!(
            old_read(scenario, IsolationLevel::ReadCommitted)?,
            "B failed"
        );
        Ok("two updates, but n is 1: one update is lost, without an error".to_owned())
    });
    runner.part(
        "Both read 0 and write 1, at REPEATABLE READ",
        repeatable_read::<C>,
    );
    runner.part("Remedy: let the database compute", computed::<C>);
    LessonRunner::note("or read FOR UPDATE, as in lesson 1");
}

/// Both read 0 and write 1, one after the other. Returns whether B's update succeeds.
fn old_read<C: Store>(scenario: &mut Scenario<'_, C>, level: IsolationLevel) -> Result<bool> {
    for session in [A, B] {
        scenario.expect_ok(session, &C::begin_at(level))?;
    }
    for session in [A, B] {
        scenario.expect_value(session, &select(1, ""), 0)?;
    }
    scenario.expect_ok(A, &update(1, 1))?;
    scenario.expect_ok(A, "COMMIT")?;
    let succeeds = match scenario.execute(B, &update(1, 1))? {
        Ok(_) => true,
        Err(error) if error.is_serialization_failure() => false,
        Err(error) => bail!(error),
    };
    scenario.expect_ok(B, if succeeds { "COMMIT" } else { "ROLLBACK" })?;
    scenario.expect_row(1, 1)?;
    Ok(succeeds)
}

/// MariaDB refuses the update with `innodb_snapshot_isolation`, the default in newer versions.
fn repeatable_read<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    let is_innodb = C::SERIALIZABLE_READS_LOCK;
    if old_read(scenario, IsolationLevel::RepeatableRead)? {
        ensure!(is_innodb, "B did not fail");
        return Ok("InnoDB loses an update at this level too, without an error".to_owned());
    }
    Ok("B's snapshot is older than A's update, so B fails: run_transaction retries it".to_owned())
}

fn computed<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    let one_more = "UPDATE lessons SET n = n + 1 WHERE id = 1";
    for session in [A, B] {
        scenario.expect_ok(session, &C::begin_at(IsolationLevel::ReadCommitted))?;
    }
    scenario.expect_ok(A, one_more)?;
    scenario.expect_blocked(B, one_more)?;
    scenario.expect_ok(A, "COMMIT")?;
    scenario.expect_unblocked(B)?;
    scenario.expect_ok(B, "COMMIT")?;
    scenario.expect_row(1, 2)?;
    Ok("n is 2: no update is lost".to_owned())
}
