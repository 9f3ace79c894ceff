//! Databases, sessions and witnesses for the tests.

pub(crate) mod backend;
pub(crate) mod inputs;
pub(crate) mod mysql;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod property;
pub(crate) mod proxy;
pub(crate) mod refusing;
pub(crate) mod rights;
pub(crate) mod sqlite;
pub(crate) mod stalling;
pub(crate) mod tables;
pub(crate) mod threads;
pub(crate) mod via;

pub(crate) use backend::Backend;
