//! The program, from its arguments to its output.

mod interruptions;
#[path = "../../../ingest/tests/program/json_run.rs"]
mod json_run;
// Shared by the programs: a separate database for a test.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../../ingest/tests/program/own_database.rs"]
mod own_database;
#[path = "../../../ingest/tests/program/processes.rs"]
mod processes;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod whole_runs;
