//! The checker reports what is wrong, and nothing else.

mod commit_evidence;
mod completion;
mod engines;
mod errors;
mod fences;
mod guards;
mod history_builder;
mod holding;
mod independence;
mod leases;
mod liveness;
mod losses;
mod numbers;
mod phases;
mod records;
mod residual_locks;
mod ticks;
mod timeouts;
mod valid_history;
mod verdict;
