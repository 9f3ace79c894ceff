//! What the page shows: snapshots of all semaphores, locks and sequences, made once for all listeners.

mod handovers;
mod lists;
pub(crate) mod publisher;
mod rates;
mod snapshot;
pub(crate) mod waits;

/// The newest state, as JSON.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) json: String,
}
