//! Transactions in transactions, as Diesel counts them.

use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};

use crate::Error;

/// How many transactions are open on the connection, savepoints included.
pub(crate) fn depth<C>(conn: &mut C) -> Result<u32, Error>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    let status = AnsiTransactionManager::transaction_manager_status_mut(conn);
    Ok(status
        .transaction_depth()?
        .map_or(0, std::num::NonZero::get))
}
