//! Slots that are held by a transaction.

use torture_history::{Outcome, Waiting, scene};

use super::Shift;
use super::asked::{semaphore, wait};
use super::dice::Dice;
use super::operation::Operation;
use super::trouble::{Failure, judged};
use crate::store::Store;

/// Notes its visit while it holds a slot.
pub(crate) fn visit<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    waiting: Waiting,
) -> Result<Outcome, Failure> {
    let gate = scene::HELD_BY_TRANSACTIONS;
    let semaphore = semaphore(shift, gate.name);
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let mut section = |conn: &mut C| -> Result<(), Failure> {
        operation.entered(None)?;
        // Long enough for all permits to be in use at times.
        dice.pause(15);
        conn.insert_visit(operation.op, gate.name)?;
        operation.leaves();
        Ok(())
    };
    let result = if waiting == Waiting::No {
        conn.try_with_slot(&semaphore, section)
            .map(|done| done.is_some())
    } else {
        conn.with_slot(&semaphore, wait(waiting), &mut section)
            .map(|()| true)
    };
    Ok(if judged(conn, result)? {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}
