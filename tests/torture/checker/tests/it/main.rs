//! The checker reports what is wrong, and nothing else.

mod completion;
mod engines;
mod errors;
mod fences;
mod holding;
mod independence;
mod leases;
mod liveness;
mod losses;
mod numbers;
mod residual_locks;
// A database of a test's own is the same everywhere.
mod commit_evidence;
mod history_builder;
#[path = "../../../../../programs/ingest/tests/program/own_database.rs"]
mod own_database;
mod phases;
mod records;
mod timeouts;
mod valid_history;
mod verdict;
