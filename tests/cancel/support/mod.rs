//! Databases, connections, pools, and what is checked after each drop. Of `tests/asynchronous` and `tests/cancel_tls` too.

pub(crate) mod after;
pub(crate) mod blocker;
pub(crate) mod case;
pub(crate) mod dropped;
pub(crate) mod engine;
pub(crate) mod mysql;
pub(crate) mod pools;
pub(crate) mod postgres;
#[path = "../../it/support/postgres_database.rs"]
pub(crate) mod postgres_database;
pub(crate) mod proxy;
pub(crate) mod report;
pub(crate) mod runtime;
pub(crate) mod sqlite;
#[path = "../../it/support/urls.rs"]
pub(crate) mod urls;
pub(crate) mod watch;
