//! Locks on two rows in different orders.

use anyhow::Result;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::{FOR_UPDATE, select, update};
use crate::barrier::{Barrier, both};
use crate::runner::LessonRunner;
use crate::scenario::Scenario;
use crate::scenario::SessionName::{A, B};
use crate::store::Store;

pub(crate) fn run<C: Store>(runner: &mut LessonRunner<'_>) {
    runner.lesson("two rows, in different orders");
    runner.part("A locks rows 1 and 2, B locks rows 2 and 1", opposite::<C>);
    runner.part("Remedy: lock rows in the same order everywhere", same::<C>);
    runner.part("Remedy: with_object_lock sorts the ids", sorted::<C>);
}

fn opposite<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    for session in [A, B] {
        scenario.expect_ok(session, "BEGIN")?;
    }
    scenario.expect_value(A, &select(1, FOR_UPDATE), 0)?;
    scenario.expect_value(B, &select(2, FOR_UPDATE), 0)?;
    scenario.expect_blocked(A, &select(2, FOR_UPDATE))?;
    let victim = scenario.expect_deadlock(B, &select(1, FOR_UPDATE))?;
    scenario.expect_ok(victim, "ROLLBACK")?;
    scenario.expect_ok(victim.other(), "COMMIT")?;
    Ok("FOR UPDATE alone does not prevent a deadlock".to_owned())
}

fn same<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    for session in [A, B] {
        scenario.expect_ok(session, "BEGIN")?;
    }
    scenario.expect_value(A, &select(1, FOR_UPDATE), 0)?;
    scenario.expect_blocked(B, &select(1, FOR_UPDATE))?;
    scenario.expect_value(A, &select(2, FOR_UPDATE), 0)?;
    for id in [2, 1] {
        scenario.expect_ok(A, &update(id, 1))?;
    }
    scenario.expect_ok(A, "COMMIT")?;
    scenario.expect_unblocked_value(B, 1)?;
    scenario.expect_value(B, &select(2, FOR_UPDATE), 1)?;
    scenario.expect_ok(B, "COMMIT")?;
    Ok("B waits at its first row, and holds no lock that A needs".to_owned())
}

/// The number of repetitions.
const ROUNDS: i64 = 20;

fn sorted<C: Store>(scenario: &mut Scenario<'_, C>) -> Result<String> {
    let start = Barrier::default();
    both(scenario.url, |conn: &mut C, session| {
        let ids = if session == A { [1, 2] } else { [2, 1] };
        start.wait();
        for _ in 0..ROUNDS {
            let lock = LockRequest::all(ids.map(|id| ObjectId::new("Lesson", id.to_string())));
            conn.with_object_lock(lock, |conn| {
                for id in ids {
                    let n = conn.number(&select(id, ""))?;
                    conn.run(&update(id, n + 1))?;
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    })?;
    scenario.print(
        A,
        "with_object_lock on 1 and 2, updates 1 and 2",
        "20 times",
    );
    scenario.print(
        B,
        "with_object_lock on 2 and 1, updates 2 and 1",
        "20 times",
    );
    for id in [1, 2] {
        scenario.expect_row(id, 2 * ROUNDS)?;
    }
    Ok("no session fails, no update is lost".to_owned())
}
