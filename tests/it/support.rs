//! Databases, sessions and witnesses for the tests.

pub(crate) mod awaited;
pub(crate) mod backend;
pub(crate) mod connection_wrapper;
pub(crate) mod failing_proxy;
pub(crate) mod generators;
pub(crate) mod mysql;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod postgres_database;
pub(crate) mod privileges;
pub(crate) mod property;
pub(crate) mod proxy;
pub(crate) mod runs;
pub(crate) mod sqlite;
pub(crate) mod stalling_proxy;
pub(crate) mod tables;
pub(crate) mod threads;
pub(crate) mod urls;
pub(crate) mod wrapped_backend;

pub(crate) use backend::Backend;

/// A pool of connections.
pub(crate) type R2d2<C> = diesel::r2d2::Pool<diesel::r2d2::ConnectionManager<C>>;
