//! What an application calls before it uses the other methods: the tables, and clusters with several writable nodes.

use diesel::Connection;
use diesel::migration::MigrationSource;

use crate::Error;
use crate::acts::administration;
#[cfg(feature = "_async")]
use crate::acts::cancel_guard::unless_dropped;
#[cfg(feature = "_async")]
use crate::engine::HasAsyncEngine;
use crate::engine::migration_runner::sql_of;
use crate::engine::{HasBlockingEngine, HasEngine};
#[cfg(feature = "_async")]
use crate::link::Link;

/// Creates or updates the tables of this crate. Returns the versions of the migrations that it ran; none if the tables
/// are up to date.
///
/// ```
/// use diesel::prelude::*;
/// use diesel::r2d2::{ConnectionManager, Pool};
///
/// let mut conn = SqliteConnection::establish(":memory:")?;
/// assert_eq!(diesel_locks::migrate(&mut conn)?.len(), 3);
/// assert_eq!(diesel_locks::migrate(&mut conn)?.len(), 0);
///
/// let pool = Pool::builder().max_size(1).build(ConnectionManager::<SqliteConnection>::new(":memory:"))?;
/// diesel_locks::migrate(&mut pool.get()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Call it when the application starts. Any number of servers may call it at the same time: one runs the migrations while the
/// others wait, without limit on MySQL, MariaDB and SQLite, and up to `lock_timeout` (off by default) on PostgreSQL. The versions
/// are recorded in Diesel's table `__diesel_schema_migrations`, and sort before every version of an application, so that
/// `diesel migration revert` reverts the application's last migration. [`run_migrations`](crate::run_migrations) runs the
/// application's own migrations too.
///
/// # Which tables
///
/// Sessions that find different tables (in schemas of PostgreSQL, databases of MySQL and MariaDB) do not exclude each other. On
/// PostgreSQL `migrate` uses the tables that the session finds by its `search_path`, and creates what is missing in their schema.
/// If it finds none, it creates them in the first schema: for a second set set the `search_path` to one schema.
///
/// # Privileges
///
/// If there is nothing to create, `migrate` writes nothing, waits for nobody, and needs only the
/// [privileges of the application](crate::operation::privileges): it may run on a standby and in a read-only session. Otherwise the
/// user needs the privilege to create tables and, on PostgreSQL, functions.
///
/// # Errors
///
/// - [`Error::AlreadyInTransaction`] in an open transaction.
/// - [`Error::InsufficientPrivilege`] or [`Error::ReadOnly`] if something is missing and can't be created.
/// - [`Error::DifferentTables`], [`Error::UnsuitableDatabase`], [`Error::Migration`].
/// - [`Error::SeveralWriters`] on a cluster where concurrent migrations are not safe, and on a database that only uses the protocol
///   of PostgreSQL or MySQL ([Clusters]). On Galera any number of nodes may migrate.
///
/// [Clusters]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guarantees.md#clusters
pub fn migrate<C: AsEngine<false>>(conn: &mut C) -> Result<Vec<String>, Error> {
    let mut engine = C::Engine::engine(conn.as_engine())?;
    C::Engine::block_on(administration::migrate(&mut *engine))
}

/// [`migrate`](crate::migrate) on a connection of diesel-async, or on a pooled one (`bb8`, `deadpool`).
///
/// If the future is dropped, others may migrate, and on PostgreSQL and SQLite all migrations that it has run are rolled back.
/// MySQL and MariaDB commit each statement: the next call continues with the migration that was running.
///
/// # Errors
///
/// As [`migrate`](crate::migrate).
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
#[cfg(feature = "_async")]
pub fn migrate_async<C: AsEngine<true>>(
    conn: &mut C,
) -> impl Future<Output = Result<Vec<String>, Error>> + Send {
    let conn = conn.as_engine();
    async move {
        let mut engine = C::Engine::engine(conn)?;
        unless_dropped!(&mut *engine, |engine| administration::migrate(engine))
    }
}

/// Runs the pending migrations of this crate ([`migrate`](crate::migrate)) and of the application, each once, while other replicas
/// do the same. Returns the versions of the migrations that it ran.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use diesel::prelude::*;
/// use diesel_migrations::{EmbeddedMigrations, embed_migrations};
///
/// const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
///
/// let mut conn = SqliteConnection::establish(":memory:")?;
/// let ran = diesel_locks::run_migrations(&mut conn, MIGRATIONS)?;
/// assert_eq!(ran.len(), 3);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Call it when each replica starts, in place of `run_pending_migrations`. One replica runs the migrations, in the order of their
/// versions. The others wait without limit, then read the records in `__diesel_schema_migrations` again, and find nothing to do.
///
/// The lock is one of the session: an advisory lock on PostgreSQL, `GET_LOCK` on MySQL and MariaDB. The server releases it when the
/// process ends, after the statement that was running. On SQLite each migration in a transaction locks the database, and each other
/// one the file `<database>-migrate`, which stays (none for a database in memory).
///
/// On PostgreSQL a waiting replica has no snapshot, so that it does not block `CREATE INDEX CONCURRENTLY`. Connect directly or
/// through a pooler in session mode.
///
/// # Interrupted migrations
///
/// A migration runs in a transaction unless its `metadata.toml` says `run_in_transaction = false`. If its process is killed, the
/// transaction is rolled back, and the next replica runs it again.
///
/// MySQL and MariaDB commit at each `CREATE TABLE`, `ALTER TABLE` and the like. If the process ends after the first such
/// statement has begun, or one of several statements fails, each call returns [`Error::InterruptedMigration`] until the migration
/// is completed or undone by hand. A migration of a single `ALTER` or `CREATE` that fails is run again by the next call.
///
/// With `run_in_transaction = false` the migration is run again after an interruption. Write it so that it can run twice (`IF NOT
/// EXISTS`). On PostgreSQL an index that it names and that is not valid is dropped first, as `CREATE INDEX CONCURRENTLY` leaves one:
/// give the index a name.
///
/// Interrupted migrations are in the table `__diesel_locks_begun_migrations`, which is created when it is needed.
///
/// # Errors
///
/// As [`migrate`](crate::migrate), and
///
/// - [`Error::InterruptedMigration`]: see above.
/// - [`Error::TransactionPooler`] on PostgreSQL, through a pooler in transaction mode that has changed the session. What has run is
///   recorded. The lock may stay in a session of the pooler until that is closed.
/// - [`Error::Migration`] also if the source of the migrations fails, or has a migration in Rust that needs the connection:
///   only SQL can be run (`EmbeddedMigrations`, `FileBasedMigrations`).
/// - [`Error::SeveralWriters`] also on Galera.
pub fn run_migrations<C, S>(conn: &mut C, migrations: S) -> Result<Vec<String>, Error>
where
    C: AsEngine<false, Engine: Connection>,
    S: MigrationSource<<C::Engine as Connection>::Backend>,
{
    let application = sql_of(migrations)?;
    let mut engine = C::Engine::engine(conn.as_engine())?;
    C::Engine::block_on(administration::run_migrations(&mut *engine, &application))
}

/// [`run_migrations`] on a connection of diesel-async, or on a pooled one (`bb8`, `deadpool`), on any kind of runtime.
///
/// If the future is dropped, the statement that is running is cancelled (on SQLite the drop waits for its end), then the lock is
/// released, and the connection is unusable.
///
/// # Errors
///
/// As [`run_migrations`].
#[cfg(feature = "_async")]
pub fn run_migrations_async<C, S>(
    conn: &mut C,
    migrations: S,
) -> impl Future<Output = Result<Vec<String>, Error>> + Send
where
    C: AsEngine<true, Engine: HasAsyncEngine>,
    S: MigrationSource<<C::Engine as Link>::Db>,
{
    // Here, because they need not be `Send`.
    let application = sql_of(migrations);
    let conn = conn.as_engine();
    async move {
        let application = application?;
        let mut engine = C::Engine::engine(conn)?;
        unless_dropped!(&mut *engine, |engine| administration::run_migrations(
            engine,
            &application
        ))
    }
}

/// Declares that the application sends all writes to the node of this connection, although other nodes accept writes too.
///
/// On a [cluster](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guarantees.md#clusters) with several writable nodes a
/// row lock on one node does not exclude sessions on the others. The methods that lock ask the server for such a cluster, once per
/// connection, or at each call after a refusal. In transactions of this crate they lock on all nodes of Galera, which takes more
/// time. Otherwise they return [`Error::SeveralWriters`]. After this call, on each new connection (in a pool of r2d2 by
/// `CustomizeConnection::on_acquire`), they work as on a single server.
/// After a fail-over, close all connections to the old node before the first lock on the new node.
///
/// The declaration is stored in the session of MySQL or MariaDB until it ends or is reset. On PostgreSQL and SQLite the
/// function does nothing.
///
/// # Errors
///
/// Errors of the database.
#[doc(alias("Galera", "Group Replication", "cluster", "wsrep"))]
pub fn assume_single_writer<C: HasBlockingEngine>(conn: &mut C) -> Result<(), Error> {
    C::block_on(C::engine(conn)?.assume_single_writer())
}

/// [`assume_single_writer`] for a connection of diesel-async.
///
/// # Errors
///
/// As [`assume_single_writer`].
#[cfg(feature = "_async")]
pub async fn assume_single_writer_async<C: HasAsyncEngine>(conn: &mut C) -> Result<(), Error> {
    let mut engine = C::engine(conn)?;
    unless_dropped!(&mut *engine, |engine| engine.assume_single_writer())
}

/// A connection, or a pooled connection: of diesel-async, or one that blocks.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "`migrate` takes `PgConnection`, `MysqlConnection` or `SqliteConnection`, `migrate_async` those of diesel-async; \
             or the engine's feature is off",
    note = "pass a connection of the pool: `migrate(&mut pool.get()?)`",
    note = "pass a connection of the pool: `migrate_async(&mut pool.get().await?)`",
    note = "enable the feature `r2d2` of `diesel-locks` for a `PooledConnection` of Diesel, `bb8` or `deadpool` for one of \
            diesel-async",
    note = "pass `&mut *conn` for a `Box`, `&mut &mut` or another pool",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`; `async-postgres`, `async-mysql` or `async-sqlite` for those of diesel-async"
)]
pub trait AsEngine<const ASYNC: bool> {
    /// The connection of the engine.
    type Engine: HasEngine;

    /// Returns the connection.
    fn as_engine(&mut self) -> &mut Self::Engine;
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> AsEngine<false> for C {
    type Engine = C;

    fn as_engine(&mut self) -> &mut C {
        self
    }
}

#[cfg(feature = "_async")]
#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsEngine<true> for C {
    type Engine = C;

    fn as_engine(&mut self) -> &mut C {
        self
    }
}

#[cfg(feature = "r2d2")]
impl<M> AsEngine<false> for diesel::r2d2::PooledConnection<M>
where
    M: diesel::r2d2::ManageConnection<Connection: HasBlockingEngine>,
{
    type Engine = M::Connection;

    fn as_engine(&mut self) -> &mut M::Connection {
        self
    }
}

/// Implements [`AsEngine`] for the pooled connections of one type.
#[allow(unused_macros, reason = "without a pool or an engine for it")]
macro_rules! pooled {
    ($conn:ty) => {
        #[cfg(feature = "bb8")]
        pooled!(diesel_async::pooled_connection::bb8::PooledConnection<'_, $conn>: $conn);
        #[cfg(feature = "deadpool")]
        pooled!(diesel_async::pooled_connection::deadpool::Object<$conn>: $conn);
    };
    ($pooled:ty: $conn:ty) => {
        impl AsEngine<true> for $pooled {
            type Engine = $conn;

            fn as_engine(&mut self) -> &mut $conn {
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
