//! What to set on each connection to SQLite: WAL mode and a `busy_timeout`.
//!
//! SQLite 3.38 or newer is required. It has one writer per database, so every lock, slot and draw of this crate waits for other
//! writers.
//!
//! - `PRAGMA busy_timeout`: how long BEGIN, COMMIT and other statements wait for another connection. It is 0 in Diesel:
//!   they fail at once with "database is locked". While this crate waits for a lock, it sets its own `busy_timeout`.
//! - `PRAGMA journal_mode = WAL`: in the other modes COMMIT waits for readers.
//!
//! `prepare`, `prepare_async` and `PrepareConnection` set both. Use them and not the text: where several connections switch a new
//! file to WAL at the same time, SQLite does not always wait, and one of them fails with "database is locked".
//!
//! Do not copy or read the file `-shm` of an open database in the process itself: when it closes that file, the operating system
//! cancels the locks of all its connections, and two of them may write at the same time. Make backups with `VACUUM INTO` or
//! SQLite's backup API.
//!
//! Connections that share a cache (`cache=shared`) wait for object locks as others do. A statement on a table that another
//! of them is using fails at once with "database table is locked", also a statement of this crate on slots.

/// Sets WAL mode, and a `busy_timeout` of 5 s, in place of which another one can be set afterwards.
///
/// # Errors
///
/// Diesel's, for example "database is locked" if another connection has kept the file from being switched for 5 s.
///
/// ```
/// use diesel::prelude::*;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("app.db").display().to_string();
/// let mut conn = SqliteConnection::establish(&path)?; // "app.db"
/// diesel_locks::operation::sqlite::prepare(&mut conn)?;
/// diesel_locks::migrate(&mut conn)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "sqlite")]
pub fn prepare(conn: &mut diesel::SqliteConnection) -> diesel::QueryResult<()> {
    crate::rt::block_on(set::both(conn))
}

/// [`prepare`] on a connection of diesel-async.
///
/// ```
/// use diesel::SqliteConnection;
/// use diesel_async::AsyncConnection;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_locks::operation::sqlite::prepare_async;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("app.db").display().to_string();
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(&path).await?;
/// prepare_async(&mut conn).await?;
/// # Ok(())
/// # }
/// ```
///
/// [An example] opens a pool of such connections.
///
/// # Errors
///
/// As [`prepare`].
///
/// [An example]: https://github.com/diesel-locks/diesel-locks/blob/main/examples/sqlite/asynchronous.rs
#[cfg(feature = "async-sqlite")]
pub async fn prepare_async(
    conn: &mut diesel_async::sync_connection_wrapper::SyncConnectionWrapper<
        diesel::SqliteConnection,
    >,
) -> diesel::QueryResult<()> {
    set::both(conn).await
}

/// Has a pool of r2d2 [prepare] each connection.
///
/// ```
/// use diesel::SqliteConnection;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_locks::operation::sqlite::PrepareConnection;
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("app.db").display().to_string();
/// let pool = Pool::builder()
///     .connection_customizer(Box::new(PrepareConnection))
///     .build(ConnectionManager::<SqliteConnection>::new(path)); // "app.db"
/// # diesel_locks::migrate(&mut pool.expect("a pool").get().expect("a connection")).expect("no tables yet");
/// ```
#[cfg(all(feature = "sqlite", feature = "r2d2"))]
#[derive(Clone, Copy, Debug)]
pub struct PrepareConnection;

#[cfg(all(feature = "sqlite", feature = "r2d2"))]
impl diesel::r2d2::CustomizeConnection<diesel::SqliteConnection, diesel::r2d2::Error>
    for PrepareConnection
{
    fn on_acquire(&self, conn: &mut diesel::SqliteConnection) -> Result<(), diesel::r2d2::Error> {
        prepare(conn).map_err(diesel::r2d2::Error::QueryError)
    }
}

#[cfg(feature = "_sqlite")]
mod set {
    use std::time::{Duration, Instant};

    use diesel::QueryResult;
    use diesel::sqlite::Sqlite;

    use crate::error::classify::{ErrorClass, classify};
    use crate::link::Link;
    use crate::rt;
    use crate::rt::backoff;

    /// The `busy_timeout`, and how long the switch to WAL mode is tried.
    const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// The longest pause between two attempts to switch.
    const PAUSE: Duration = Duration::from_millis(20);

    pub(crate) async fn both<C: Link<Backend = Sqlite>>(conn: &mut C) -> QueryResult<()> {
        let set = format!("PRAGMA busy_timeout = {}", BUSY_TIMEOUT.as_millis());
        conn.batch(&set).await?;
        let started = Instant::now();
        loop {
            match conn.batch("PRAGMA journal_mode = WAL").await {
                // Two connections that both want to switch would wait for each other, so SQLite lets one of them fail at once.
                Err(error)
                    if classify(&error) == ErrorClass::Busy && started.elapsed() < BUSY_TIMEOUT =>
                {
                    rt::pause(backoff::jittered(PAUSE)).await;
                }
                done => return done,
            }
        }
    }
}
