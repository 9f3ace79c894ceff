//! Shared by the benchmarks: databases of their own, the variants that are compared, and threads
//! with a connection each.

pub(crate) mod backend;
pub(crate) mod connections;
pub(crate) mod cycle;
pub(crate) mod engine_filter;
mod mysql;
mod postgres;
mod server;
mod sqlite;
mod tables;
pub(crate) mod variant;
