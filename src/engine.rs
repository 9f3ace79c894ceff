//! The engines. Each implements [`Engine`] for the connections to its database: object locks and sequences here, transactions and
//! semaphores in `operations`.
//!
//! `tables` and the modules `.._queries` contain what several engines share; `sql` and `.._sql` the statements of one engine.

#![cfg_attr(
    not(all(feature = "_postgres", feature = "_mysql", feature = "_sqlite")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "no engine needs all"
    )
)]

pub(crate) mod active_isolation;
mod clock;
pub(crate) mod ending;
mod literal;
pub(crate) mod migration_runner;
#[cfg(feature = "_mysql")]
mod mysql;
pub(crate) mod operations;
#[cfg(feature = "_postgres")]
mod postgres;
mod sequence_queries;
mod slot_queries;
pub(crate) mod slots;
#[cfg(feature = "_sqlite")]
mod sqlite;
mod tables;
pub(crate) mod wrapper;

#[cfg(feature = "_mysql")]
pub(crate) use crate::engine::mysql::MysqlEngine;
#[cfg(feature = "_postgres")]
pub(crate) use crate::engine::postgres::PostgresEngine;
#[cfg(feature = "_sqlite")]
pub(crate) use crate::engine::sqlite::SqliteEngine;

use async_trait::async_trait;
use diesel::connection::Connection;

use crate::engine::operations::{DrawRequest, SemaphoreBackend, SequenceRow, TransactionBackend};
use crate::values::held_object_lock::HeldObjectLock;
use crate::values::list_options::ListRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, Sequence};

/// What a database does for this crate, on one connection.
#[async_trait]
pub trait Engine: TransactionBackend + SemaphoreBackend {
    /// Runs the pending migrations while no other session does. No transaction is open. Returns their versions.
    async fn migrate(&mut self) -> Result<Vec<String>, Error>;

    /// Begins a transaction at READ COMMITTED (SQLite: immediate), and acquires the locks in it or leaves none open.
    async fn begin_with_locks(&mut self, request: &Request) -> Result<LockOutcome, Error>;

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error>;

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
pub trait HasBlockingEngine: HasEngine + Connection {
    /// Runs the future of a method, which is ready at once.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        crate::rt::block_on(future)
    }
}

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
