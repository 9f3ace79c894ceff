//! Processes that are killed, and processes that are stopped.

use anyhow::Result;
use torture_history::workload_spec;

use super::hit::Hit;
use super::rng::NemesisRng;
use crate::run_context::RunContext;

/// Kills a worker, and starts it again a little later.
pub(super) fn kill(context: &RunContext, rng: &mut NemesisRng) -> Result<Hit> {
    let worker = rng.number(0..context.worker_pool.size());
    context.worker_pool.kill(worker)?;
    context.sleep(rng.time(0..800));
    context.worker_pool.restart(worker)?;
    Ok(Hit::one(worker))
}

/// Stops a worker for longer than the longest lease, most of the time.
pub(super) fn pause(context: &RunContext, rng: &mut NemesisRng) -> Hit {
    let worker = rng.number(0..context.worker_pool.size());
    context.worker_pool.pause(worker);
    let lease = workload_spec::LONGEST_LEASE_MS;
    context.sleep(rng.time(lease * 3 / 4..lease * 9 / 4));
    context.worker_pool.wake(worker);
    Hit::one(worker)
}
