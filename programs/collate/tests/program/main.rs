//! The program, from its arguments to its output.

mod interruptions;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod whole_runs;
