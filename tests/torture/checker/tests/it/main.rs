//! The checker reports what is wrong, and nothing else.

mod endings;
mod engines;
mod errors;
mod fences;
mod holding;
mod independence;
mod leases;
mod leftovers;
mod liveness;
mod losses;
mod numbers;
// A database of a test's own is the same everywhere.
#[path = "../../../../../programs/ingest/tests/program/own_database.rs"]
mod own_database;
mod phases;
mod play;
mod presence;
mod records;
mod right;
mod timeouts;
mod verdict;
