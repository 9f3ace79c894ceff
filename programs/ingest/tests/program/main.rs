//! The program, from its arguments to its output.

mod interruptions;
mod json_run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod own_database;
mod processes;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod whole_runs;
