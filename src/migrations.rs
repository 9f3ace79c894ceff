//! The migrations that create the tables.
//!
//! [`migrate`](crate::migrate) runs them. An application that embeds its own migrations can run these constants with them,
//! and [`write_to`] writes the files into a folder for the Diesel CLI.

#[cfg(feature = "_async")]
pub(crate) mod async_run;
pub(crate) mod backend;
pub(crate) mod files;
pub(crate) mod run;
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
pub(crate) mod runner;
mod write;

#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

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
