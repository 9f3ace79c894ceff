//! Transfers between accounts, without a lock of the library's: transactions that are tried again.

use diesel_locks::prelude::*;
use torture_history::Outcome;

use super::Shift;
use super::dice::Dice;
use super::operation::Operation;
use super::retried::retried;
use super::trouble::{Failure, judged};
use crate::store::Store;

/// Moves money. The two accounts are locked in whatever order comes, so that deadlocks happen.
pub(crate) fn transfer<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    from: u32,
    to: u32,
) -> Result<Outcome, Failure> {
    let amount = i64::try_from(dice.number(1..100))?;
    let mut transaction = retried();
    if dice.percent(50) {
        transaction = transaction.isolation(IsolationLevel::Serializable);
    }
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let result = conn.run_transaction(transaction, |conn| -> Result<(), Failure> {
        operation.entered(None)?;
        for (account, sum) in [(from, -amount), (to, amount)] {
            let mut read = conn.read_account(account)?;
            dice.pause(2);
            read.n += 1;
            read.balance += sum;
            conn.write_account(operation.op, account, &read)?;
        }
        operation.leaves();
        Ok(())
    });
    judged(conn, result)?;
    Ok(Outcome::Done)
}
