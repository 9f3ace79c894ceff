//! What the threads of a worker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::{LockPool, SlotRenewer};
use torture_history::Writer;

use super::pool::Connections;
use crate::job::Job;
use crate::store::Store;

/// What the threads of a worker share.
pub(crate) struct WorkerContext<C: Store> {
    pub(crate) job: Job,
    pub(crate) pool: Connections<C>,
    pub(crate) locks: LockPool<Pool<ConnectionManager<C>>>,
    pub(crate) renewer: SlotRenewer<Pool<ConnectionManager<C>>>,
    pub(crate) history: Arc<Writer>,
    pub(super) operations: AtomicU32,
    pub(super) is_over: AtomicBool,
}

impl<C: Store> WorkerContext<C> {
    /// Whether the process is to stop.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}
