//! Locks on two rows in different orders.

use anyhow::Result;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::{FOR_UPDATE, select, update};
use crate::meeting::{Meeting, both};
use crate::play::Play;
use crate::stage::Stage;
use crate::stage::Who::{A, B};
use crate::store::Store;

pub(crate) fn play<C: Store>(play: &mut Play<'_>) {
    play.lesson("two rows, in different orders");
    play.part("A takes 1 and 2, B takes 2 and 1", opposite::<C>);
    play.part("Remedy: one order everywhere", same::<C>);
    play.part("Remedy: an object lock on both sorts them", sorted::<C>);
}

fn opposite<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.does(who, "BEGIN")?;
    }
    stage.reads(A, &select(1, FOR_UPDATE), 0)?;
    stage.reads(B, &select(2, FOR_UPDATE), 0)?;
    stage.waits(A, &select(2, FOR_UPDATE))?;
    let victim = stage.clashes(B, &select(1, FOR_UPDATE))?;
    stage.does(victim, "ROLLBACK")?;
    stage.does(victim.other(), "COMMIT")?;
    Ok("FOR UPDATE alone does not help".to_owned())
}

fn same<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    for who in [A, B] {
        stage.does(who, "BEGIN")?;
    }
    stage.reads(A, &select(1, FOR_UPDATE), 0)?;
    stage.waits(B, &select(1, FOR_UPDATE))?;
    stage.reads(A, &select(2, FOR_UPDATE), 0)?;
    for id in [2, 1] {
        stage.does(A, &update(id, 1))?;
    }
    stage.does(A, "COMMIT")?;
    stage.goes_on_and_reads(B, 1)?;
    stage.reads(B, &select(2, FOR_UPDATE), 1)?;
    stage.does(B, "COMMIT")?;
    Ok("B waits at its first row, where it holds nothing that A wants".to_owned())
}

/// The number of repetitions.
const ROUNDS: i64 = 20;

fn sorted<C: Store>(stage: &mut Stage<'_, C>) -> Result<String> {
    let start = Meeting::default();
    both(stage.url, |conn: &mut C, who| {
        let ids = if who == A { [1, 2] } else { [2, 1] };
        start.wait();
        for _ in 0..ROUNDS {
            let lock = LockRequest::all(ids.map(|id| ObjectId::new("Lesson", id.to_string())));
            conn.with_object_locks(lock, |conn| {
                for id in ids {
                    let n = conn.number(&select(id, ""))?;
                    conn.run(&update(id, n + 1))?;
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    })?;
    stage.print(
        A,
        "with_object_locks on 1 and 2, updates 1 and 2",
        "20 times",
    );
    stage.print(
        B,
        "with_object_locks on 2 and 1, updates 2 and 1",
        "20 times",
    );
    for id in [1, 2] {
        stage.ends_with(id, 2 * ROUNDS)?;
    }
    Ok("nobody fails, nothing is lost".to_owned())
}
