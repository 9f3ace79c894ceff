//! The engines. Each implements the backend traits of all primitives for the connections to its database.
//!
//! In each folder the modules `sql` and `slot_sql` contain statements, and the other modules run them.

#[cfg_attr(
    not(any(feature = "_mysql", feature = "_sqlite")),
    allow(dead_code, reason = "PostgreSQL shows a transaction's level")
)]
pub(crate) mod active_isolation;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod clock;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod list_queries;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod literal;
#[cfg(feature = "_mysql")]
mod mysql;
#[cfg(feature = "_postgres")]
mod postgres;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod raw_sql;
#[cfg(any(feature = "_mysql", feature = "_postgres", feature = "_sqlite"))]
mod retry;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod sequence_queries;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod slot_methods;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
mod slot_queries;
#[cfg(any(feature = "_mysql", feature = "_postgres"))]
mod slot_resize;
#[cfg(feature = "_sqlite")]
mod sqlite;

#[cfg(feature = "async-sqlite")]
pub(crate) use sqlite::begin_at_once;

#[cfg(feature = "async-postgres")]
pub(crate) use postgres::untracked;

use diesel::connection::{Connection, TransactionManagerStatus};

use crate::migrations::backend::MigrationBackend;
use crate::object_lock::backend::ObjectLockBackend;
use crate::poll::poll_once;
use crate::semaphore::backend::SemaphoreBackend;
use crate::sequence::backend::SequenceBackend;
use crate::timer::Timer;
use crate::transaction::backend::TransactionBackend;

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
    /// The backend traits have no receivers and belong to this type. As methods they could be called on every connection of
    /// an application that is generic over [`TransactionExt`](crate::TransactionExt), would bypass the checks of the public
    /// methods, and would collide with methods of the same name in the application's own traits.
    type LockEngine: MigrationBackend<Self>
        + TransactionBackend<Self>
        + ObjectLockBackend<Self>
        + SemaphoreBackend<Self>
        + SequenceBackend<Self>;

    /// How it pauses and waits.
    type LockTimer: Timer;

    /// The open transactions, as the connection itself counts them. Those that count are in
    /// [`status`](TransactionBackend::status).
    fn counted_transactions(conn: &mut Self) -> &mut TransactionManagerStatus;
}

/// A connection of Diesel for which there is an engine. Sealed, as [`HasEngine`] is.
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
        poll_once(future)
    }
}

/// A connection of diesel-async for which there is an engine. Sealed, as [`HasEngine`] is.
#[cfg(feature = "_async")]
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
pub trait HasAsyncEngine: HasEngine + crate::link::Link {}

/// Implements [`HasEngine`] and [`HasBlockingEngine`] for a connection of Diesel.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! has_engine {
    ($conn:ty, $engine:ty) => {
        impl crate::engine::HasEngine for $conn {
            type LockEngine = $engine;
            type LockTimer = crate::timer::thread::ThreadTimer;

            fn counted_transactions(
                conn: &mut Self,
            ) -> &mut diesel::connection::TransactionManagerStatus {
                use diesel::connection::{AnsiTransactionManager, TransactionManager};

                AnsiTransactionManager::transaction_manager_status_mut(conn)
            }
        }

        impl crate::engine::HasBlockingEngine for $conn {}
    };
}
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use has_engine;

/// Implements [`HasEngine`] and [`HasAsyncEngine`] for a connection of diesel-async.
#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "async-sqlite"
))]
macro_rules! has_async_engine {
    ($conn:ty, $engine:ty) => {
        impl crate::engine::HasEngine for $conn {
            type LockEngine = $engine;
            type LockTimer = crate::timer::task::TaskTimer;

            fn counted_transactions(
                conn: &mut Self,
            ) -> &mut diesel::connection::TransactionManagerStatus {
                crate::link::nonblocking::status(conn)
            }
        }

        impl crate::engine::HasAsyncEngine for $conn {}
    };
}
#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "async-sqlite"
))]
use has_async_engine;

/// The functions of [`TransactionBackend`] that a [`Link`](crate::link::Link) has.
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
macro_rules! transactions_of_link {
    ($conn:ty) => {
        fn status(conn: &mut $conn) -> &mut diesel::connection::TransactionManagerStatus {
            crate::link::Link::status(conn)
        }

        async fn begin_savepoint(conn: &mut $conn) -> diesel::QueryResult<()> {
            crate::link::Link::begin_nested(conn).await
        }

        async fn release_savepoint(conn: &mut $conn) -> diesel::QueryResult<()> {
            crate::link::release(conn).await
        }

        async fn roll_back_to_savepoint(conn: &mut $conn) -> diesel::QueryResult<()> {
            crate::link::Link::roll_back(conn).await
        }
    };
}
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
use transactions_of_link;
