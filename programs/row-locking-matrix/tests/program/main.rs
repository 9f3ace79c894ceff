//! The program, from its arguments to its output.

mod arguments;
// Shared by the programs: a separate database for a test.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../../ingest/tests/program/own_database.rs"]
mod own_database;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod sqlite;
