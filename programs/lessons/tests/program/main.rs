//! The program itself: its lessons come out as told.

// All programs make their databases alike.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../../ingest/tests/program/own_database.rs"]
mod own_database;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod sqlite;
