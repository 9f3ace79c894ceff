//! Processes that are killed, and processes that stand still.

use anyhow::Result;
use torture_history::scene;

use super::Hit;
use super::fate::Fate;
use crate::stage::Stage;

/// Kills a worker, and starts it again a little later.
pub(super) fn kill(stage: &Stage, fate: &mut Fate) -> Result<Hit> {
    let worker = fate.number(0..stage.crew.size());
    stage.crew.kill(worker)?;
    stage.rest(fate.time(0..800));
    stage.crew.restart(worker)?;
    Ok(Hit::one(worker))
}

/// Stops a worker for longer than the longest lease, most of the time.
pub(super) fn pause(stage: &Stage, fate: &mut Fate) -> Hit {
    let worker = fate.number(0..stage.crew.size());
    stage.crew.pause(worker);
    let lease = scene::LONGEST_LEASE_MS;
    stage.rest(fate.time(lease * 3 / 4..lease * 9 / 4));
    stage.crew.wake(worker);
    Hit::one(worker)
}
