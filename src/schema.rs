//! The tables as Diesel's `table!`, one module per engine, as `diesel print-schema` prints them.

/// PostgreSQL.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[allow(missing_docs, reason = "printed by Diesel")]
pub mod postgres;

/// MySQL and MariaDB.
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
#[allow(missing_docs, reason = "printed by Diesel")]
pub mod mysql;

/// SQLite.
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
#[allow(missing_docs, reason = "printed by Diesel")]
pub mod sqlite;
