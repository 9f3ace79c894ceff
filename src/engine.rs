//! The engines. Each implements the backend traits of all primitives for its Diesel connection.
//!
//! In each folder the modules `sql` and `slot_sql` contain statements, and the other modules run them.

#[cfg_attr(
    not(any(feature = "mysql", feature = "sqlite")),
    allow(dead_code, reason = "PostgreSQL shows a transaction's level")
)]
pub(crate) mod active_isolation;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod clock;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod list_queries;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod literal;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod raw_sql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod retry;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sequence_queries;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod slot_methods;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod slot_queries;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod slot_resize;
#[cfg(feature = "sqlite")]
mod sqlite;
