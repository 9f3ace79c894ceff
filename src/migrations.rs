//! The migrations that create the tables.
//!
//! [`migrate`](crate::migrate) runs them. An application that embeds its own migrations can run these constants with them,
//! and [`write_to`] writes the files into a folder for the Diesel CLI.

pub(crate) mod run;
pub(crate) mod write;

#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
use crate::Error;

pub use write::{WriteError, write_to};

/// The migrations for PostgreSQL.
#[cfg(feature = "_postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// The migrations for MySQL and MariaDB.
#[cfg(feature = "_mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub const MYSQL: EmbeddedMigrations = embed_migrations!("migrations/mysql");

/// The migrations for SQLite.
#[cfg(feature = "_sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// Runs the next pending migration and returns its version; `None` if none is pending.
#[cfg(feature = "_mysql")]
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

#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
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
