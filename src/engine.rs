//! The engines: each implements the backend traits of the primitives for its connection of Diesel's.
//!
//! In each folder `sql`, `slot_sql` and the like contain the statements, and the other modules run them.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod active_isolation;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod clock;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod raw_sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sequence_queries;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod slot_queries;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod slot_resize;
#[cfg(feature = "sqlite")]
mod sqlite;
