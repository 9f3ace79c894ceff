//! What both benchmarks stand on: databases of their own, the variants that are compared, and threads
//! with a connection each.

pub(crate) mod backend;
pub(crate) mod choice;
pub(crate) mod crew;
pub(crate) mod cycle;
mod mysql;
mod postgres;
mod server;
mod sqlite;
mod tables;
