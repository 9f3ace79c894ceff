//! Says from the histories of a torture test, and from its database, what was violated.
//!
//! It shares no code with `diesel-locks`: the database is read with SQL of its own, and what workers did is known
//! from their histories alone. [`check`] compares the two; [`Verdict`] is the result.
//!
//! What counts as holding, and what does not:
//!
//! - A transaction that was committed held its locks and its slot from when it entered until COMMIT was sent. One that
//!   was not, or of which only the beginning is known, held nothing for certain.
//! - Who leased a slot believes that it holds it from when it entered until its own monotonic deadline. The database
//!   counts leases by its own clock: when that jumps ahead ([`Fault::ahead`]) it may grant the slot to another
//!   holder before the deadline, as the documentation of leases says; the fences of the two differ. So a
//!   belief is cut at the first jump ahead after the operation began; fences and writes are judged as ever.
//! - Times are compared where one moment came before the other for certain: an answer, and a request sent after it.
//!
//! [`Fault::ahead`]: torture_history::Fault::ahead
//!
//! | file | subject |
//! |---|---|
//! | `operation.rs`, `run.rs` | the records of each operation, joined |
//! | `evidence.rs`, `evidence/` | what the database says |
//! | `commits.rs` | what took place, and whether that was reported to the worker |
//! | `losses.rs` | transactions that were gone before their end, and locks that outlived a panic |
//! | `counters.rs`, `order.rs`, `sequences.rs`, `contiguity.rs` | numbers that must be 1 to n, in the order of time |
//! | `holders.rs`, `believed_holds.rs`, `capacity.rs`, `fences.rs` | who held what, when |
//! | `ticks.rs` | ticks of a timer that were run again |
//! | `guards.rs` | losses that guards did not report, and releases that the next waiter of the process learned of late |
//! | `leases.rs`, `fault_windows.rs` | leases that were lost although no fault was near |
//! | `residual_locks.rs`, `completion.rs`, `errors.rs` | locks that were left, operations that never ended, which errors are expected |
//! | `liveness.rs`, `timeouts.rs` | whether anything was done at all, and waits of the wrong length |
//! | `phases.rs` | throughput, and how long faults kept others waiting |
//! | `violation.rs`, `verdict.rs`, `report.rs` | what is said about it |

#![allow(
    clippy::missing_errors_doc,
    reason = "a crate for the one beside it, not for users"
)]

mod believed_holds;
mod capacity;
mod commits;
mod completion;
mod contiguity;
mod counters;
mod errors;
mod evidence;
mod fault_windows;
mod fences;
mod findings;
mod guards;
mod holders;
mod intervals;
mod leases;
mod limits;
mod liveness;
mod losses;
mod operation;
mod order;
mod phases;
mod report;
mod residual_locks;
mod run;
mod sequences;
mod ticks;
mod timeouts;
mod verdict;
mod violation;

use anyhow::Result;
use torture_history::Histories;

pub use evidence::{
    Counter, Evidence, LedgerRow, Pass, ReadEvidence, Resource, Sequence, Slot, SlotUse, Step,
    Write,
};
pub use limits::Limits;
pub use phases::{Phase, Phases, Times, Waits};
pub use verdict::{Found, Outcomes, Verdict};
pub use violation::Violation;

use findings::Findings;
use run::Run;

/// Compares histories and database. An error when the histories contradict themselves, which no fault explains.
pub fn check(histories: &Histories, evidence: &Evidence, limits: &Limits) -> Result<Verdict> {
    let mut run = Run::of(histories)?;
    let mut findings = Findings::default();
    commits::check(&mut run, evidence, &mut findings);
    counters::check(&run, evidence, &mut findings);
    sequences::check(&run, evidence, &mut findings);
    order::check(&run, evidence, &mut findings);
    losses::check(&run, limits, &mut findings);
    holders::check(&run, evidence, &mut findings);
    capacity::check(&run, limits, &mut findings);
    fences::check_grants(&run, limits, &mut findings);
    fences::check_writes(&run, evidence, &mut findings);
    ticks::check(&run, &mut findings);
    leases::check(&run, evidence, limits, &mut findings);
    guards::check(&run, &mut findings);
    residual_locks::check(evidence, &mut findings);
    completion::check(&run, limits, &mut findings);
    liveness::check(&run, evidence, limits, &mut findings);
    timeouts::check(&run, evidence, limits, &mut findings);
    errors::check(&run, evidence, limits, &mut findings);
    Ok(Verdict::of(&run, findings))
}
