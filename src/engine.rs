//! What differs per database engine: one trait, one module per engine.
//!
//! In each module `statements` says what is sent, and the module itself runs it.

use diesel::QueryResult;
use diesel::connection::{AnsiTransactionManager, Connection};

use crate::object_lock::acquire::Request;
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, TransactionOptions};

#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod active_isolation;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod clock;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod raw_sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sequence_queries;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod slot_queries;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod slot_resize;
#[cfg(feature = "sqlite")]
mod sqlite;

/// A database engine, seen through Diesel's connection to it.
///
/// Sealed: the module is private. To add an engine, see "How to add an engine" in DESIGN.md.
///
/// The functions have no receiver. As methods they could be called on every connection of an application that is
/// generic over [`ObjectLockExt`](crate::ObjectLockExt), would bypass the checks of the public methods, and would collide
/// with methods of the same name in the application's own traits.
pub trait Engine: Connection<TransactionManager = AnsiTransactionManager> {
    /// Lives as long as the closure that runs in a transaction of this crate's making.
    type Scope;

    /// Opens a transaction at READ COMMITTED (SQLite: immediate) and takes the locks in it. Anything
    /// but [`Grant::Locked`] leaves no transaction open.
    fn begin_locked(conn: &mut Self, request: &Request) -> Result<Grant, Error>;

    /// Takes the locks in the transaction that is open.
    fn lock_here(conn: &mut Self, request: &Request) -> Result<Grant, Error>;

    /// What a transaction changes in the session while it runs.
    type SessionChange;

    /// [`Error::Unsupported`] for what the engine does not have.
    fn check(transaction: &TransactionOptions) -> Result<(), Error>;

    /// Opens a transaction that has been checked.
    fn begin(
        conn: &mut Self,
        transaction: &TransactionOptions,
    ) -> Result<Self::SessionChange, Error>;

    /// Sets back what [`begin`](Self::begin) has changed, when the transaction has ended.
    fn restore_session(conn: &mut Self, before: Self::SessionChange) -> Result<(), Error>;

    /// Makes the connection fit for another attempt, after one that the database gave up.
    fn before_retry(conn: &mut Self);

    /// Marks the transaction that this crate has opened, of this level if it has set one.
    fn enter(conn: &mut Self, level: Option<IsolationLevel>) -> Self::Scope;

    /// [`Error::TransactionAborted`] when the server does not have the transaction that Diesel counts. Not for
    /// engines on which each statement fails then, or the one that locks or draws finds it out.
    fn assert_open(_: &mut Self) -> Result<(), Error> {
        Ok(())
    }

    /// Commits the transaction that this crate has opened; an error when the server has it no more, or would
    /// roll it back. After an error it may still be open.
    fn commit(conn: &mut Self) -> Result<(), Error>;

    /// The error of [`commit`](Self::commit) when the transaction was not there any more for a rollback.
    fn after_commit(error: Error) -> Error {
        error
    }

    /// Rolls back, and sets back what the transaction's beginning has changed in the session for as long as it
    /// runs. Whether the transaction was the one that this crate has opened, as far as the engine can tell. After an
    /// error one may still be open.
    fn roll_back(conn: &mut Self) -> QueryResult<bool>;

    /// Whether what a transaction failed with may have been the server's end of it. If not, who ended it may have
    /// committed it.
    fn may_end_transactions(_: &mut Self, _: RetryReason) -> bool {
        false
    }

    /// Deletes kept rows that nobody holds, each in a transaction as short as can be.
    fn purge(conn: &mut Self) -> Result<usize, Error>;

    /// Has the session know that all writes go to its server.
    fn assume_single_writer(conn: &mut Self) -> Result<(), Error> {
        let _ = conn;
        Ok(())
    }

    /// Runs the pending migrations while no other session does.
    fn migrate(conn: &mut Self) -> Result<Vec<String>, Error>;
}

/// The answer to a request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// All locks are ours.
    Locked,
    /// Another transaction holds one, and the request was not to wait.
    Held,
}
