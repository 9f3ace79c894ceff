//! The migrations that make the tables, for an application that runs them with its own;
//! [`migrate`](crate::migrate) runs them by itself, and
//! [`write_to`] writes them into a folder for the Diesel CLI.

pub(crate) mod run;
pub(crate) mod write;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use crate::Error;

pub use write::{WriteError, write_to};

/// The migrations for PostgreSQL.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// The migrations for MySQL and MariaDB.
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub const MYSQL: EmbeddedMigrations = embed_migrations!("migrations/mysql");

/// The migrations for SQLite.
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// The version of the next migration, which has run; `None` when all have.
#[cfg(feature = "mysql")]
pub(crate) fn run_next<C, DB>(
    conn: &mut C,
    migrations: EmbeddedMigrations,
) -> Result<Option<String>, Error>
where
    C: diesel_migrations::MigrationHarness<DB>,
    DB: diesel::backend::Backend,
{
    let pending = conn.pending_migrations(migrations);
    let pending = pending.map_err(Error::Migration)?;
    let Some(next) = pending.first() else {
        return Ok(None);
    };
    let version = conn.run_migration(next).map_err(Error::Migration)?;
    Ok(Some(version.to_string()))
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn run_pending<C, DB>(
    conn: &mut C,
    migrations: EmbeddedMigrations,
) -> Result<Vec<String>, Error>
where
    C: diesel_migrations::MigrationHarness<DB>,
    DB: diesel::backend::Backend,
{
    let ran = conn
        .run_pending_migrations(migrations)
        .map_err(Error::Migration)?;
    Ok(ran.iter().map(ToString::to_string).collect())
}
