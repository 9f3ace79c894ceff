//! Creates the tables, on one server while the others wait.

use super::backend::MigrationBackend;
use crate::engine::{HasBlockingEngine, HasEngine};
use crate::{Error, transaction::depth};

/// Creates or updates the tables of this crate. Returns the versions of the migrations that it ran; none if the tables
/// are up to date.
///
/// Call it when the application starts, with a connection or a pooled connection. Any number of servers may call it at
/// the same time: one runs the migrations while the others wait, without limit on MySQL, MariaDB and SQLite, and up to
/// `lock_timeout` (off by default) on PostgreSQL. (Diesel itself takes no lock around migrations.) The
/// versions are recorded in Diesel's table `__diesel_schema_migrations`. They sort before every version of an
/// application, so that `diesel migration revert` reverts the application's last migration.
///
/// An application that runs migrations of its own can run these with them: see [`migrations`](crate::migrations).
///
/// # Which tables
///
/// On PostgreSQL it uses the tables that the session finds by its `search_path`, and creates what is missing in their schema.
/// If it finds none, it creates them in the first schema of the `search_path`. So there is a second set of tables only if the
/// `search_path` has none but the schema for it: `SET search_path = tenant_2`. Locks, slots and numbers are those of the set
/// that a session finds: sessions that find different sets (schemas of PostgreSQL, databases of MySQL and MariaDB) do not
/// exclude each other. Diesel finds its own table by the `search_path` too, and its `run_pending_migrations`
/// creates one in the first schema, even if there is another behind it.
///
/// # Privileges
///
/// If there is nothing to create, `migrate` writes nothing, waits for nobody, and needs no privilege but those that the
/// application needs anyway: it may run on a standby and in a read-only session. Otherwise the user needs the privilege to
/// create tables and, on PostgreSQL, functions. An application that connects as another user needs the privileges listed in
/// [Privileges](crate::operation::privileges).
///
/// # The application's own migrations
///
/// On MySQL and MariaDB do not run migrations in [`with_object_lock`](crate::ObjectLockExt::with_object_lock), nor in any
/// other transaction: `CREATE TABLE` and `ALTER TABLE` commit it, which releases the lock. Then Diesel fails on a savepoint
/// that no longer exists, and does not record the migration, so that all later runs fail at a table that exists. Use
/// `SELECT GET_LOCK(..)` there, or let one process migrate before the others start.
///
/// # Errors
///
/// - [`Error::AlreadyInTransaction`] in an open transaction.
/// - [`Error::InsufficientPrivilege`] or [`Error::ReadOnly`] if something is missing and can't be created.
/// - [`Error::DifferentTables`] if all migrations are recorded and the tables are not those of this version.
/// - [`Error::UnsuitableDatabase`] with SQLite before 3.38, or pages of InnoDB smaller than 16 kB. Nothing is created then.
/// - [`Error::Migration`] if a migration fails.
/// - [`Error::SeveralWriters`] on a cluster where concurrent migrations are not safe (Group Replication with several
///   primaries), and on a database that only uses the protocol of PostgreSQL or MySQL (`CockroachDB`, `YugabyteDB`,
///   `TiDB`, Vitess). On Galera any number of nodes may migrate.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
///
/// let mut conn = SqliteConnection::establish(":memory:")?;
/// assert_eq!(diesel_locks::migrate(&mut conn)?.len(), 3);
/// assert_eq!(diesel_locks::migrate(&mut conn)?.len(), 0);
/// # Ok(())
/// # }
/// ```
///
/// With a pool:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel::r2d2::{ConnectionManager, Pool};
///
/// let pool = Pool::builder().max_size(1).build(ConnectionManager::<SqliteConnection>::new(":memory:"))?;
/// diesel_locks::migrate(&mut pool.get()?)?;
/// # Ok(())
/// # }
/// ```
pub fn migrate<C: AsEngine>(conn: &mut C) -> Result<Vec<String>, Error> {
    C::Engine::block_on(run(conn.as_engine()))
}

/// [`migrate`] on a connection of any kind.
pub(super) async fn run<C: HasEngine>(conn: &mut C) -> Result<Vec<String>, Error> {
    if depth::depth(conn)? > 0 {
        return Err(Error::AlreadyInTransaction {
            method: "migrate",
            reason: "MySQL and MariaDB would commit it",
        });
    }
    C::LockEngine::migrate(conn).await
}

/// A connection, or a pooled connection.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass a connection of the pool: `migrate(&mut pool.get()?)`",
    note = "enable the feature `r2d2` of `diesel-locks` for a `PooledConnection`",
    note = "pass `&mut *conn` for a `Box`, `&mut &mut` or a pool other than r2d2",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait AsEngine {
    /// The connection of the engine.
    type Engine: HasBlockingEngine;

    /// Returns the connection.
    fn as_engine(&mut self) -> &mut Self::Engine;
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> AsEngine for C {
    type Engine = C;

    fn as_engine(&mut self) -> &mut C {
        self
    }
}

#[cfg(feature = "r2d2")]
impl<M> AsEngine for diesel::r2d2::PooledConnection<M>
where
    M: diesel::r2d2::ManageConnection<Connection: HasBlockingEngine>,
{
    type Engine = M::Connection;

    fn as_engine(&mut self) -> &mut M::Connection {
        self
    }
}
