//! Passes with gap-free numbers.

use diesel_locks::prelude::*;
use torture_history::{Outcome, scene};

use super::Shift;
use super::dice::Dice;
use super::operation::Operation;
use super::retried::retried;
use super::trouble::{ChangedItsMind, Failure, judged};
use crate::sabotage::Sabotage;
use crate::store::Store;

/// Draws a number and inserts a pass with it; one of five changes its mind.
pub(crate) fn issue<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    number: u32,
) -> Result<Outcome, Failure> {
    let sequence = Sequence::new(scene::SEQUENCES_NAME).for_key(number);
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let leak = if shift.job.sabotage == Some(Sabotage::LeakySequence) {
        Some(
            conn.run_transaction(retried(), |conn| -> Result<i64, Failure> {
                Ok(conn.next_number(&sequence)?)
            })?,
        )
    } else {
        None
    };
    let result = conn.run_transaction(retried(), |conn| -> Result<(), Failure> {
        let drawn = match leak {
            Some(leak) => leak,
            None => conn.next_number(&sequence)?,
        };
        operation.entered(None)?;
        dice.pause(2);
        conn.insert_pass(operation.op, number, drawn)?;
        operation.leaves();
        if dice.percent(20) {
            return Err(ChangedItsMind.into());
        }
        Ok(())
    });
    judged(conn, result)?;
    Ok(Outcome::Done)
}
