//! What workers ask for, as the library puts it.

use std::time::Duration;

use diesel_locks::{Semaphore, Wait};
use torture_history::{WaitLimit, workload_spec};

use super::context::WorkerContext;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// How long is waited.
pub(crate) fn wait(wait_limit: WaitLimit) -> Wait {
    match wait_limit {
        WaitLimit::Forever => Wait::Forever,
        WaitLimit::No => Wait::No,
        WaitLimit::AtMost(milliseconds) => Wait::AtMost(Duration::from_millis(milliseconds)),
    }
}

/// The semaphore whose slots are held by transactions.
pub(crate) fn held_by_transactions<C: Store>(context: &WorkerContext<C>) -> Semaphore {
    let leased = semaphore(context, workload_spec::HELD_BY_TRANSACTIONS.name);
    if context.job.sabotage == Some(Sabotage::SlotIgnoresLeases) {
        return Semaphore::new("not leased", leased.permits().expect("its own"));
    }
    leased
}

/// Whether so many permits are requested at once; sabotage: never.
pub(crate) fn may_be_several<C: Store>(context: &WorkerContext<C>, permits: u32) -> bool {
    permits > 1 && context.job.sabotage != Some(Sabotage::PartialPermits)
}

/// A semaphore of the workload, with the permits that the workers assume.
pub(crate) fn semaphore<C: Store>(context: &WorkerContext<C>, name: &str) -> Semaphore {
    let is_limited = name == workload_spec::LIMITED.name;
    if is_limited && context.job.sabotage != Some(Sabotage::IgnoredLimit) {
        return Semaphore::registered(name);
    }
    let leased = workload_spec::semaphores().find(|semaphore| semaphore.name == name);
    let permits = leased.map_or(1, |semaphore| semaphore.permits);
    let more = u32::from(context.job.sabotage == Some(Sabotage::OverCapacity));
    Semaphore::new(name, permits + more)
}
