//! The program itself, from its arguments to what it prints.

mod interruptions;
mod json_run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod own_database;
mod processes;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod whole_runs;
