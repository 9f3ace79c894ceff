//! What workers ask for, as the library puts it.

use std::time::Duration;

use diesel_locks::{Semaphore, Wait};
use torture_history::{Waiting, scene};

use super::Shift;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// How long is waited.
pub(crate) fn wait(waiting: Waiting) -> Wait {
    match waiting {
        Waiting::Forever => Wait::Forever,
        Waiting::No => Wait::No,
        Waiting::AtMost(milliseconds) => Wait::AtMost(Duration::from_millis(milliseconds)),
    }
}

/// One of the semaphores of the scene, as the workers believe it to be.
pub(crate) fn semaphore<C: Store>(shift: &Shift<C>, name: &str) -> Semaphore {
    let leased = scene::semaphores().find(|semaphore| semaphore.name == name);
    let permits = leased.map_or(1, |semaphore| semaphore.permits);
    let more = u32::from(shift.job.sabotage == Some(Sabotage::OverCapacity));
    Semaphore::new(name, permits + more)
}
