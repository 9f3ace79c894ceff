//! Leased slots that renewers renew.

use std::pin::Pin;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub(in crate::semaphore) use super::backend::ReleaseKind;
use crate::{Error, LeaseState, Slot};

#[cfg(feature = "r2d2")]
pub(crate) mod blocking;
pub(super) mod callbacks;
mod expiry_watcher;
pub(super) mod held;
#[cfg(feature = "_async_pool")]
pub(crate) mod nonblocking;
pub(super) mod state;

/// How long a thread that drops a guard waits at most until the slot is released.
pub(super) const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// What a guard needs of its renewer, whatever the type of its connections.
pub(super) trait Renew: Send + Sync {
    /// Stops renewing the slot.
    fn remove(&self, slot: &Slot);
    /// Releases the slot with a connection of the pool. The future is ready at once if the connections block.
    fn release<'a>(&'a self, slot: &'a Slot) -> Releasing<'a>;
    /// Has the slot released in the background, whose lease ends after `remaining`. The receiver is
    /// disconnected when the slot is released.
    fn release_in_background(
        &self,
        slot: &Slot,
        kind: ReleaseKind,
        remaining: Duration,
    ) -> Receiver<()>;
}

/// The outcome of a release.
pub(super) type Releasing<'a> =
    Pin<Box<dyn Future<Output = Result<LeaseState, Error>> + Send + 'a>>;
