//! Passes with gap-free numbers.

use diesel_locks::prelude::*;
use torture_history::{Outcome, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, IntentionalRollback, classify_result};
use super::operation::Operation;
use super::retry::retry_options;
use super::workload::Workload;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// Draws a number and inserts a pass with it; one of five changes its mind.
pub(crate) fn issue<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    number: u32,
) -> Result<Outcome, Failure> {
    let sequence = Sequence::new(workload_spec::SEQUENCES_NAME).for_key(number);
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let leak = if context.job.sabotage == Some(Sabotage::LeakySequence) {
        Some(
            conn.run_transaction(retry_options(), |conn| -> Result<i64, Failure> {
                Ok(conn.next_number(&sequence)?)
            })?,
        )
    } else {
        None
    };
    let result = conn.run_transaction(retry_options(), |conn| -> Result<(), Failure> {
        let drawn = match leak {
            Some(leak) => leak,
            None => conn.next_number(&sequence)?,
        };
        operation.entered(None)?;
        operation.drew(drawn)?;
        workload.pause(2);
        conn.insert_pass(operation.op, number, drawn)?;
        operation.leaves();
        if workload.percent(20) {
            return Err(IntentionalRollback.into());
        }
        Ok(())
    });
    classify_result(conn, result)?;
    Ok(Outcome::Done)
}
