//! Creates the tables on a connection of diesel-async.

use super::run::run;
use crate::Error;
use crate::cancel::unless_dropped;
use crate::engine::HasAsyncEngine;

/// [`migrate`](crate::migrate) on a connection of diesel-async, or on a pooled one (`bb8`, `deadpool`).
///
/// The future is `Send`, and runs on every kind of tokio's runtimes. If it is dropped, others may migrate, and on PostgreSQL
/// and SQLite all migrations that it has run are rolled back. MySQL and MariaDB commit each statement: the next call
/// continues with the migration that was running. See [Dropped futures](crate::operation::dropped_futures).
///
/// # Errors
///
/// As [`migrate`](crate::migrate).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::AsyncConnection;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// assert_eq!(diesel_locks::migrate_async(&mut conn).await?.len(), 3);
/// assert_eq!(diesel_locks::migrate_async(&mut conn).await?.len(), 0);
/// # Ok(())
/// # }
/// ```
///
/// With a pool:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/asynchronous.rs")); }
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// diesel_locks::migrate_async(&mut pool.get().await?).await?;
/// # Ok(())
/// # }
/// ```
pub fn migrate_async<C: AsAsyncEngine>(
    conn: &mut C,
) -> impl Future<Output = Result<Vec<String>, Error>> + Send {
    let conn = conn.as_async_engine();
    async move { unless_dropped!(conn, |conn| run(conn)) }
}

/// A connection of diesel-async, or a pooled one.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass a connection of the pool: `migrate_async(&mut pool.get().await?)`",
    note = "enable the feature `bb8` or `deadpool` of `diesel-locks` for a pooled connection, or pass `&mut *conn`",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
pub trait AsAsyncEngine {
    /// The connection of the engine.
    type Engine: HasAsyncEngine;

    /// Returns the connection.
    fn as_async_engine(&mut self) -> &mut Self::Engine;
}

#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsAsyncEngine for C {
    type Engine = C;

    fn as_async_engine(&mut self) -> &mut C {
        self
    }
}

/// Implements [`AsAsyncEngine`] for the pooled connections of one type.
#[cfg(all(
    any(feature = "bb8", feature = "deadpool"),
    any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )
))]
macro_rules! pooled {
    ($conn:ty) => {
        #[cfg(feature = "bb8")]
        pooled!(diesel_async::pooled_connection::bb8::PooledConnection<'_, $conn>: $conn);
        #[cfg(feature = "deadpool")]
        pooled!(diesel_async::pooled_connection::deadpool::Object<$conn>: $conn);
    };
    ($pooled:ty: $conn:ty) => {
        impl AsAsyncEngine for $pooled {
            type Engine = $conn;

            fn as_async_engine(&mut self) -> &mut $conn {
                self
            }
        }
    };
}

#[cfg(all(feature = "async-postgres", any(feature = "bb8", feature = "deadpool")))]
pooled!(diesel_async::AsyncPgConnection);
#[cfg(all(feature = "async-mysql", any(feature = "bb8", feature = "deadpool")))]
pooled!(diesel_async::AsyncMysqlConnection);
#[cfg(all(feature = "async-sqlite", any(feature = "bb8", feature = "deadpool")))]
pooled!(diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>);
