//! Databases, sessions and witnesses for the tests.

pub(crate) mod backend;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod sqlite;
pub(crate) mod threads;

pub(crate) use backend::Backend;
