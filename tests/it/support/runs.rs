//! Closures that run under a lock or a slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the closures that run, and fails if more run at the same time than there are permits.
pub(crate) struct Runs {
    permits: usize,
    running: AtomicUsize,
    ended: AtomicUsize,
}

impl Runs {
    pub(crate) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            permits,
            running: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        })
    }

    pub(crate) fn run(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(running <= self.permits, "{running} run at the same time");
        std::thread::yield_now();
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }
}
