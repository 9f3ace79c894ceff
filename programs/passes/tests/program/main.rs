//! The program itself, from its arguments to what it prints.

mod interruptions;
#[path = "../../../ingest/tests/program/json_run.rs"]
mod json_run;
// All programs make their databases alike.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../../ingest/tests/program/own_database.rs"]
mod own_database;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod whole_runs;
