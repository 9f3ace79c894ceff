//! The tables as Diesel's `table!`, one module per engine, as `diesel print-schema` prints them.

/// PostgreSQL.
#[cfg(feature = "_postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[allow(missing_docs, reason = "printed by Diesel")]
pub mod postgres;

/// MySQL and MariaDB.
#[cfg(feature = "_mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
#[allow(missing_docs, reason = "printed by Diesel")]
pub mod mysql;

/// SQLite.
#[cfg(feature = "_sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
#[allow(missing_docs, reason = "printed by Diesel")]
pub mod sqlite;

/// The tables of this crate.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) const TABLES: [&str; 5] = [
    "diesel_locks_fences",
    "diesel_locks_objects",
    "diesel_locks_semaphores",
    "diesel_locks_sequences",
    "diesel_locks_slots",
];
