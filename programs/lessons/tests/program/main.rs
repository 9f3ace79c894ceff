//! The program itself: its lessons come out as expected.

mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod sqlite;
