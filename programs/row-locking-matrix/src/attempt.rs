//! One transaction at an isolation level, and how it ended.

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel_locks::Error;

use crate::store::Store;

/// Why the database refused a transaction that may succeed the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Deadlock,
    /// It would have to change what another has changed since its snapshot, or the like.
    Serialization,
    /// SQLite: another writes, or has written since the snapshot. Elsewhere: a limit on waiting.
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

/// A transaction that `begin` begins: committed, or refused and rolled back. Any other error ends it too.
pub(crate) fn attempt<C: Store>(
    conn: &mut C,
    begin: &str,
    work: impl FnOnce(&mut C) -> Result<(), Error>,
) -> Result<Option<Refusal>, Error> {
    // By Diesel's own hand, so that it and `next_number` know that a transaction is open.
    let ended = AnsiTransactionManager::begin_transaction_sql(conn, begin)
        .map_err(Error::from)
        .and_then(|()| work(conn))
        .and_then(|()| Ok(AnsiTransactionManager::commit_transaction(conn)?));
    let Err(error) = ended else {
        return Ok(None);
    };
    // BEGIN or COMMIT may have failed, and the transaction be over.
    if open(conn)? {
        AnsiTransactionManager::rollback_transaction(conn)?;
    }
    Refusal::of(&error).map(Some).ok_or(error)
}

fn open<C: Store>(conn: &mut C) -> Result<bool, Error> {
    let status = AnsiTransactionManager::transaction_manager_status_mut(conn);
    Ok(status.transaction_depth()?.is_some())
}
