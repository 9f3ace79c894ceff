//! What the clones of a handle share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ObjectId;
use crate::pooled::Connections;
use crate::queue::Queues;

pub(super) struct Shared<L> {
    pub(super) connections: Connections<L>,
    /// The requests that wait for object locks, by the objects.
    pub(super) queues: Arc<Queues<Vec<ObjectId>, ()>>,
    /// How many requests wait for a slot. Their queues belong to the process.
    pub(super) slot_waiters: AtomicUsize,
}

impl<L> Shared<L> {
    pub(super) fn new(pool: L) -> Self {
        Self {
            connections: Connections::new(pool),
            queues: Arc::new(Queues::exclusive()),
            slot_waiters: AtomicUsize::new(0),
        }
    }

    pub(super) fn pool(&self) -> &L {
        self.connections.pool()
    }

    /// How many requests wait for a lock or a slot, or make an attempt.
    pub(super) fn waiting(&self) -> usize {
        self.queues.waiting() + self.slot_waiters.load(Ordering::SeqCst)
    }
}
