//! The program, from its arguments to its output.

mod arguments;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod sqlite;
