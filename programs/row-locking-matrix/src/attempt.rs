//! Runs one transaction at an isolation level.

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel_locks::Error;

use crate::store::Store;

/// Why the database refused a transaction that can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Deadlock,
    /// A serialization failure, for example because another transaction has changed the row since the snapshot.
    Serialization,
    /// SQLite: another connection writes, or has written since the snapshot. Other engines: a lock time-out.
    Busy,
}

impl Refusal {
    fn of(error: &Error) -> Option<Self> {
        if error.is_deadlock() {
            Some(Self::Deadlock)
        } else if error.is_serialization_failure() {
            Some(Self::Serialization)
        } else if error.is_timeout() {
            Some(Self::Busy)
        } else {
            None
        }
    }
}

/// Runs `work` in a transaction that `begin` starts, and commits it. Returns why the database refused it, if it did;
/// any other error is returned as such. Both roll back.
pub(crate) fn attempt<C: Store>(
    conn: &mut C,
    begin: &str,
    work: impl FnOnce(&mut C) -> Result<(), Error>,
) -> Result<Option<Refusal>, Error> {
    // By Diesel, so that Diesel and `next_number` know that a transaction is open.
    let ended = AnsiTransactionManager::begin_transaction_sql(conn, begin)
        .map_err(Error::from)
        .and_then(|()| work(conn))
        .and_then(|()| Ok(AnsiTransactionManager::commit_transaction(conn)?));
    let Err(error) = ended else {
        return Ok(None);
    };
    // The transaction may have ended already, if BEGIN or COMMIT failed.
    if open(conn)? {
        AnsiTransactionManager::rollback_transaction(conn)?;
    }
    Refusal::of(&error).map(Some).ok_or(error)
}

fn open<C: Store>(conn: &mut C) -> Result<bool, Error> {
    let status = AnsiTransactionManager::transaction_manager_status_mut(conn);
    Ok(status.transaction_depth()?.is_some())
}
