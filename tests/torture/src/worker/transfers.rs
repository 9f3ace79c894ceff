//! Transfers between accounts, without a lock of the library's: transactions that are tried again.

use diesel_locks::{IsolationLevel, LockPool};
use torture_history::Outcome;

use super::context::WorkerContext;
use super::errors::{Failure, classify_in_lock_pool, classify_result};
use super::operation::Operation;
use super::retry::retry_options;
use super::workload::Workload;
use crate::store::Store;

/// Moves money. The two accounts are locked in whatever order comes, so that deadlocks happen. Half of
/// the transfers are run again on another connection when theirs is lost.
pub(crate) fn transfer<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    from: u32,
    to: u32,
) -> Result<Outcome, Failure> {
    let amount = i64::try_from(workload.number(1..100))?;
    let mut transaction = retry_options();
    if workload.percent(50) {
        transaction = transaction.isolation(IsolationLevel::Serializable);
    }
    let on_any_connection = workload.percent(50);
    let section = |conn: &mut C| -> Result<(), Failure> {
        operation.entered(None)?;
        for (account, sum) in [(from, -amount), (to, amount)] {
            let mut read = conn.read_account(account)?;
            workload.pause(2);
            read.n += 1;
            read.balance += sum;
            conn.write_account(operation.op, account, &read)?;
        }
        operation.leaves();
        Ok(())
    };
    if on_any_connection {
        let pool = LockPool::new(context.pool.clone());
        let result = pool.run_transaction(transaction, section);
        result.map_err(classify_in_lock_pool)?;
        return Ok(Outcome::Done);
    }
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let result = conn.run_transaction(transaction, section);
    classify_result(conn, result)?;
    Ok(Outcome::Done)
}
