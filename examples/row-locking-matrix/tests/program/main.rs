//! The program itself, from its arguments to what it prints.

mod arguments;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod sqlite;
