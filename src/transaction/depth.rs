//! Transactions in transactions, as Diesel counts them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::QueryResult;
use diesel::connection::{
    AnsiTransactionManager, Connection, TransactionManager, TransactionManagerStatus,
};

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

/// Marks the connection as broken when `work` panics, in an application's instrumentation: the session may have begun
/// or taken what Diesel does not know of. A pool discards it.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn break_on_panic<C, T>(conn: &mut C, work: impl FnOnce(&mut C) -> T) -> T
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    catch_unwind(AssertUnwindSafe(|| work(conn))).unwrap_or_else(|panic| {
        AnsiTransactionManager::transaction_manager_status_mut(conn).set_in_error();
        resume_unwind(panic)
    })
}

/// Sends BEGIN and what goes with it.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn begin<C>(conn: &mut C, message: &str) -> QueryResult<()>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    break_on_panic(conn, |conn| {
        AnsiTransactionManager::begin_transaction_sql(conn, message)
    })
}

/// Tells Diesel that no transaction is open any more, after a statement of ours that has ended it.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn mark_closed<C>(conn: &mut C)
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    *AnsiTransactionManager::transaction_manager_status_mut(conn) =
        TransactionManagerStatus::default();
}

/// Whether Diesel knows that the database has given the transaction up: on InnoDB by a deadlock.
///
/// It tells nobody, but for a feature that would be on for the whole application; so this reads what it shows when
/// it is debugged.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn is_aborted<C>(conn: &mut C) -> bool
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    let status = AnsiTransactionManager::transaction_manager_status_mut(conn);
    format!("{status:?}").contains("requires_rollback_maybe_up_to_top_level: true")
}
