//! The jobs that run in the background, each in a slot of a semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::{SlotGuard, StopToken};
use tokio::{task, time};

use crate::log;

/// How often a job looks whether it still holds its slot: the longest step of its work.
const STEP: Duration = Duration::from_millis(20);

/// Counts the jobs that run.
#[derive(Clone, Default)]
pub(crate) struct Jobs(Arc<AtomicUsize>);

impl Jobs {
    pub(crate) fn running(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Runs a job for this time. It ends early when it has lost its slot, and when the process is to end.
    pub(crate) fn start(&self, guard: SlotGuard, duration: Duration, shutdown: StopToken) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.0));
        tokio::spawn(async move {
            let running = running;
            let end = Instant::now() + duration;
            while guard.is_held() && !shutdown.is_stopped() && Instant::now() < end {
                time::sleep(STEP.min(end.saturating_duration_since(Instant::now()))).await;
            }
            // A release blocks. One that fails is repeated by the renewer until the lease ends.
            let released = task::spawn_blocking(move || {
                let _running = running;
                guard.release()
            });
            if let Ok(Err(error)) = released.await {
                log::line(&format!("a slot was not released by its job: {error}"));
            }
        });
    }
}

/// Counts one job less when it is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
