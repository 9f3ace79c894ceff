//! What the torture test's workers do, and how they write it down: all that workers and checker have in common.
//!
//! Nothing here knows `diesel-locks`.

#![allow(
    clippy::missing_errors_doc,
    clippy::return_self_not_must_use,
    reason = "a crate for two others beside it, not for users"
)]

mod client;
mod fault;
mod files;
mod moment;
mod outcome;
mod record;
mod task;
pub mod workload_spec;

pub use client::Client;
pub use fault::{Fault, FaultKind};
pub use files::{Histories, Writer, read_all};
pub use moment::Moment;
pub use outcome::{ErrorKind, Outcome, Release};
pub use record::{GuardEvent, Op, Record, Row, SlotHeld};
pub use task::{InjectedFault, Locking, Request, Task, TransactionMethod, WaitLimit};
