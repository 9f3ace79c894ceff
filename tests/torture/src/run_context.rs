//! What the run and the nemesis share.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use torture_history::{Fault, FaultKind, Moment};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::proxy::Proxy;
use crate::worker_pool::WorkerPool;

/// The interval between checks for the end of the run.
const PAUSE: Duration = Duration::from_millis(50);

/// The window without new faults: the period, and the offset in it from which it lasts, in seconds.
pub(crate) const FAULT_FREE_WINDOW: (u64, u64) = (60, 30);

/// What faults can hit.
pub(crate) struct Targets {
    pub(crate) engine: Engine,
    pub(crate) cluster: Option<Cluster>,
    /// The database, not by way of a proxy: on each node of a cluster, otherwise one.
    pub(crate) urls: Vec<String>,
    pub(crate) worker_pool: WorkerPool,
    /// One for each worker; none on SQLite.
    pub(crate) proxies: Vec<Proxy>,
    /// Of each server that may be killed.
    pub(crate) kill_server: Vec<PathBuf>,
    /// Of the network of each node, if it can be stopped.
    pub(crate) kill_network: Vec<PathBuf>,
    /// What makes another node the primary, if a statement can't.
    pub(crate) switch_over: Option<PathBuf>,
    /// Of each server whose clock can be set.
    pub(crate) clocks: Vec<Clock>,
}

/// The state of a run.
pub(crate) struct RunContext {
    targets: Targets,
    started: Instant,
    until: Instant,
    /// The run has failed.
    is_aborted: AtomicBool,
    faults: Mutex<Vec<Fault>>,
}

impl Deref for RunContext {
    type Target = Targets;

    fn deref(&self) -> &Targets {
        &self.targets
    }
}

impl RunContext {
    /// Starts the run.
    pub(crate) fn new(targets: Targets, duration: Duration) -> Self {
        let started = Instant::now();
        Self {
            targets,
            started,
            until: started + duration,
            is_aborted: AtomicBool::new(false),
            faults: Mutex::new(Vec::new()),
        }
    }

    /// Ends the run and returns its workers.
    pub(crate) fn into_worker_pool(self) -> WorkerPool {
        self.targets.worker_pool
    }

    /// Whether it is time to stop.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.is_aborted.load(Ordering::SeqCst)
    }

    /// Ends the run early.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
    }

    /// Waits while no fault is to begin: half of every minute, in which nothing excuses what goes wrong.
    pub(crate) fn wait_out_fault_free_window(&self) {
        while !self.is_over()
            && self.started.elapsed().as_secs() % FAULT_FREE_WINDOW.0 >= FAULT_FREE_WINDOW.1
        {
            sleep(PAUSE);
        }
    }

    /// Waits, but not beyond the end.
    pub(crate) fn sleep(&self, duration: Duration) {
        let until = self.until.min(Instant::now() + duration);
        while !self.is_over() && Instant::now() < until {
            sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Notes a fault that was over just now; `ahead` as in the log.
    pub(crate) fn note(
        &self,
        kind: FaultKind,
        worker: Option<usize>,
        from: Moment,
        ahead: Option<(Moment, Moment)>,
    ) {
        self.faults().push(Fault {
            kind,
            worker: worker.and_then(|worker| u32::try_from(worker).ok()),
            from,
            until: Moment::now(),
            ahead,
        });
    }

    /// What was noted so far.
    pub(crate) fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
