//! What an engine implements for transactions.

use std::future::ready;

use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;

use crate::engine::active_isolation;
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, TransactionOptions};

/// The transactions of an engine. [`HasEngine`](crate::engine::HasEngine) ties the backend traits of an engine together.
///
/// Sealed: the module is private. To add an engine, see "How to add an engine" in DESIGN.md.
///
/// The functions of these traits have no receiver. As methods they could be called on every connection of an
/// application that is generic over [`TransactionExt`](crate::TransactionExt), would bypass the checks of the public
/// methods, and would collide with methods of the same name in the application's own traits.
///
/// Those that send statements are asynchronous: see [`poll`](crate::poll).
pub trait TransactionBackend<C> {
    /// Whether statements are sent to a server, which may never answer.
    const IS_REMOTE: bool = true;

    /// The open transactions, as Diesel counts them.
    fn status(conn: &mut C) -> &mut TransactionManagerStatus;

    /// Starts a savepoint in the open transaction.
    fn begin_savepoint(conn: &mut C) -> impl Future<Output = QueryResult<()>> + Send;

    /// Ends the innermost savepoint, whose changes become those of the transaction around it.
    fn release_savepoint(conn: &mut C) -> impl Future<Output = QueryResult<()>> + Send;

    /// Ends the innermost savepoint and undoes its changes.
    fn roll_back_to_savepoint(conn: &mut C) -> impl Future<Output = QueryResult<()>> + Send;

    /// Fails with [`Error::Unsupported`] for options that the engine does not have.
    fn validate(_: &mut C, _: &TransactionOptions) -> Result<(), Error> {
        Ok(())
    }

    /// Begins a transaction with validated options.
    fn begin(
        conn: &mut C,
        transaction: &TransactionOptions,
    ) -> impl Future<Output = Result<SessionChange, Error>> + Send;

    /// Restores what [`begin`](Self::begin) has changed in the session, after the transaction has ended.
    fn restore_session(
        _: &mut C,
        _: SessionChange,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Prepares the connection for another attempt after one that the database aborted.
    fn prepare_retry(_: &mut C) {}

    /// Marks the transaction that this crate has started, with its level if this crate has set one, while its closure
    /// runs. `None` on engines that show a transaction's level.
    fn mark_isolation(_: &mut C, _: Option<IsolationLevel>) -> Option<active_isolation::Scope> {
        None
    }

    /// Fails with [`Error::TransactionAborted`] when the server has already ended the transaction that Diesel counts.
    /// Not needed on engines on which each later statement fails, or on which locking and drawing detect it.
    fn assert_open(_: &mut C) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Commits the transaction that this crate has started. Fails when the server has already ended it, or would roll it
    /// back. After an error it may still be open.
    fn commit(conn: &mut C) -> impl Future<Output = Result<(), Error>> + Send;

    /// The error of [`commit`](Self::commit) when the following rollback found no transaction.
    fn map_commit_error(_: &mut C, error: Error) -> Error {
        error
    }

    /// Rolls back, and restores what the beginning of the transaction has changed in the session. Returns whether the
    /// transaction was the one that this crate has started, as far as the engine can tell. After an error one may still
    /// be open.
    fn roll_back(conn: &mut C) -> impl Future<Output = QueryResult<bool>> + Send;

    /// Whether the error may have ended the transaction on the server. Otherwise it was ended by a statement, which may
    /// have committed it.
    fn may_end_transactions(_: &mut C, _: RetryReason) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// The transactions that a closure may have left behind by PREPARE TRANSACTION: those of its user in this database.
    fn prepared_transactions(_: &mut C) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// Stores in the session that all writes are sent to this server. Does nothing on engines that have one writer anyway.
    fn assume_single_writer(_: &mut C) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Ends what a dropped future has started, when `depth` transactions were open before it, and marks the connection as
    /// broken. `undo`: a statement for what may be committed. Does nothing on connections that block: their futures are
    /// never dropped before they are ready.
    fn abandon(_: &mut C, _depth: u32, _undo: Option<&str>) {}
}

/// What a transaction has changed in the session until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChange {
    None,
    /// SQLite's `query_only` is on, and was off before.
    #[allow(dead_code, reason = "of SQLite alone")]
    QueryOnly,
}
