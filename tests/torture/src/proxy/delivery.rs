//! Whether and when data that a proxy has received is passed on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The delay and the silence of all connections of a proxy.
#[derive(Default)]
pub(super) struct Delivery {
    delay_ms: AtomicU64,
    is_silent: Mutex<bool>,
    resumed: Condvar,
}

impl Delivery {
    pub(super) fn set_delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay_ms.store(delay, Ordering::SeqCst);
    }

    pub(super) fn set_silent(&self, silent: bool) {
        *self.lock() = silent;
        self.resumed.notify_all();
    }

    pub(super) fn is_silent(&self) -> bool {
        *self.lock()
    }

    /// Returns when data that was received may be passed on.
    pub(super) fn wait(&self) {
        let delay = self.delay_ms.load(Ordering::SeqCst);
        if delay > 0 {
            thread::sleep(Duration::from_millis(delay));
        }
        let mut is_silent = self.lock();
        while *is_silent {
            is_silent = self
                .resumed
                .wait(is_silent)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_silent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
