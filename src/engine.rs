//! The engines. Each implements [`Engine`] for the connections to its database: transactions, object locks and sequences here,
//! semaphores in `slots`.
//!
//! `tables` and the modules `.._queries` contain what several engines share. In the folder of an engine, `sql` and `.._sql` are
//! statements that several of its modules send; others stand where they are sent.

#![cfg_attr(
    not(all(feature = "_postgres", feature = "_mysql", feature = "_sqlite")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "no engine needs all"
    )
)]

pub(crate) mod dialect;
pub(crate) mod ending;
mod literal;
pub(crate) mod migration_runner;
#[cfg(feature = "_mysql")]
mod mysql;
#[cfg(feature = "_postgres")]
mod postgres;
pub(crate) mod sequence_queries;
mod slot_queries;
pub(crate) mod slots;
#[cfg(feature = "_sqlite")]
mod sqlite;
pub(crate) mod tables;
pub(crate) mod wrapper;

#[cfg(feature = "_mysql")]
pub(crate) use crate::engine::mysql::MysqlEngine;
#[cfg(feature = "_postgres")]
pub(crate) use crate::engine::postgres::PostgresEngine;
#[cfg(feature = "_sqlite")]
pub(crate) use crate::engine::sqlite::SqliteEngine;

use async_trait::async_trait;
use diesel::connection::{Connection, TransactionManagerStatus};

use crate::engine::migration_runner::SqlMigration;
use crate::engine::sequence_queries::{DrawRequest, SequenceRow};
use crate::engine::slots::SemaphoreBackend;
use crate::link::Savepoint;
use crate::values::held_object_lock::HeldObjectLock;
use crate::values::list_options::ListRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::values::retry_policy::RetryReason;
use crate::{Error, Sequence, TransactionOptions};

/// What a database does for this crate, on one connection.
#[async_trait]
pub trait Engine: SemaphoreBackend {
    /// Whether the database is in this process: see [`HasEngine::IN_PROCESS`].
    fn is_in_process(&self) -> bool {
        false
    }

    /// The open transactions, as Diesel counts them.
    fn status(&mut self) -> &mut TransactionManagerStatus;

    async fn savepoint(&mut self, act: Savepoint) -> Result<(), diesel::result::Error>;

    /// Fails with [`Error::Unsupported`] for options that the engine does not have.
    fn validate(&self, _: &TransactionOptions) -> Result<(), Error> {
        Ok(())
    }

    /// Begins a transaction with validated options. Returns whether `restore_session` has to be called after it.
    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<bool, Error>;

    /// Restores what [`begin`](Self::begin) has changed in the session, after the transaction has ended.
    async fn restore_session(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Prepares the connection for another attempt after one that the database aborted.
    fn prepare_retry(&mut self) {}

    /// Fails with [`Error::TransactionAborted`] when the server has already ended the transaction that Diesel counts.
    /// Not needed where each later statement fails, or where locking and drawing detect it.
    async fn assert_open(&mut self) -> Result<(), Error>;

    /// Commits the transaction that this crate has started. Fails when the server has already ended it, or would roll it
    /// back. After an error it may still be open.
    async fn commit(&mut self) -> Result<(), Error>;

    /// The error of [`commit`](Self::commit) when the following rollback found no transaction.
    fn map_commit_error(&self, error: Error) -> Error {
        error
    }

    /// Rolls back, and restores what the beginning of the transaction has changed in the session. Returns whether this crate had
    /// started the transaction, as far as the engine can tell. After an error one may still be open.
    async fn roll_back(&mut self) -> Result<bool, diesel::result::Error>;

    /// Whether the error may have ended the transaction. Otherwise a statement has ended it, and may have committed it.
    async fn may_end_transactions(&mut self, _: RetryReason) -> Result<bool, Error> {
        Ok(false)
    }

    /// The transactions that a closure may have left behind by PREPARE TRANSACTION: those of its user in this database.
    async fn prepared_transactions(&mut self) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Stores in the session that all writes are sent to this server. Does nothing on engines that have one writer anyway.
    async fn assume_single_writer(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Ends what a dropped future has started, when `depth` transactions were open before it, and marks the connection as
    /// broken. Outer transactions are rolled back too: they can't be committed without what the future has not done. `undo`: a
    /// statement for what may be committed. Does nothing on connections that block: their futures are never dropped before they
    /// are ready.
    fn abandon(&mut self, depth: u32, undo: Option<&str>);

    /// Runs the pending migrations of this crate, and those of the application, while no other session does: under one lock
    /// of the session (on SQLite of each migration of the application). No transaction is open. Returns their versions.
    async fn migrate(&mut self, application: Option<&[SqlMigration]>)
    -> Result<Vec<String>, Error>;

    /// Begins a transaction at READ COMMITTED (SQLite: immediate), and acquires the locks in it or leaves none open. Returns `None`
    /// if the row of a shared lock is missing, unless this transaction is to create it.
    async fn begin_with_locks(
        &mut self,
        request: &Request,
        creates_shared: bool,
    ) -> Result<Option<LockOutcome>, Error>;

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error>;

    /// Marks the objects that readers hold and the request wants exclusively, unless a writer holds one of the request: until the mark
    /// ends, no request that begins its transaction acquires their shared locks. Called outside a transaction. Does nothing on engines
    /// without shared locks.
    async fn want_exclusive(&mut self, _: &Request) -> Result<(), Error> {
        Ok(())
    }

    /// Deletes kept rows that are not locked, in short transactions; returns how many were deleted.
    async fn purge_unlocked(&mut self) -> Result<usize, Error>;

    /// Returns the locks that the server shows as held. Waits for nothing and locks nothing.
    async fn held_locks(&mut self) -> Result<Vec<HeldObjectLock>, Error>;

    /// Adds to the last number of the sequence, or inserts its row; returns the last number of this draw. Returns `None`, and
    /// changes nothing, when the number is larger than [`max_last`](DrawRequest::max_last). The row stays locked until the
    /// transaction ends: waits for that of the previous draw.
    async fn draw(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error>;

    /// Returns the last number drawn, by committed transactions or this one. Does not wait.
    async fn last(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error>;

    async fn list_sequences(&mut self, request: &ListRequest) -> Result<Vec<SequenceRow>, Error>;
}

/// A connection for which there is an engine.
///
/// Sealed: the module is private. To add an engine, see "How to add an engine" in DESIGN.md.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait HasEngine: Sized + Send {
    /// Whether the database is in this process: no server that may never answer, and one write lock for all objects.
    const IN_PROCESS: bool = false;

    /// Returns the engine of the connection. Fails with [`Error::SeparateTransactionState`] for a wrapper that counts open
    /// transactions by itself.
    ///
    /// Without a receiver: an application that is generic over [`TransactionExt`](crate::TransactionExt) can't call it by
    /// mistake, and may have a trait with a method of this name.
    fn engine(conn: &mut Self) -> Result<Box<dyn Engine + '_>, Error>;

    /// Runs the future of a method of a connection that blocks, which is ready at once.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        crate::rt::block_on(future)
    }
}

/// A connection of Diesel for which there is an engine.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait HasBlockingEngine: HasEngine + Connection {}

/// A connection of diesel-async for which there is an engine.
#[cfg(feature = "_async")]
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
pub trait HasAsyncEngine: HasEngine + crate::link::Link {}

macro_rules! has_engine {
    // A connection of diesel-async, and the wrapper by which an application blocks on it.
    (async $conn:ty, $engine:ident, in_process: $in_process:expr) => {
        crate::engine::has_engine!(HasAsyncEngine: $conn, $engine, in_process: $in_process);
        crate::engine::has_engine!(
            HasBlockingEngine: diesel_async::async_connection_wrapper::AsyncConnectionWrapper<$conn, B>,
            $engine, in_process: $in_process;
            <B: diesel_async::async_connection_wrapper::BlockOn + Send>
        );
    };
    ($kind:ident: $conn:ty, $engine:ident, in_process: $in_process:expr $(; $($generic:tt)*)?) => {
        impl $($($generic)*)? crate::engine::HasEngine for $conn {
            const IN_PROCESS: bool = $in_process;

            fn engine(
                conn: &mut Self,
            ) -> Result<Box<dyn crate::engine::Engine + '_>, crate::Error> {
                Ok(Box::new(crate::engine::$engine(conn)))
            }
        }

        impl $($($generic)*)? crate::engine::$kind for $conn {}
    };
}
use has_engine;
