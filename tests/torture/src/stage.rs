//! What the run and the nemesis share.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use torture_history::{Fault, FaultKind, Moment, scene};

use crate::clock::Clock;
use crate::crew::Crew;
use crate::engine::Engine;
use crate::nemesis::network::LONGEST_SILENCE_MS;
use crate::proxy::Proxy;

/// How often who waits looks whether it is over.
const PAUSE: Duration = Duration::from_millis(50);

/// Of so many seconds, from this one on.
const CALM: (u64, u64) = (60, 30);

/// What began before goes on for a while, and excuses for some time after it; something is to be left of the calm.
const _: () = {
    let fault = LONGEST_SILENCE_MS / 1000;
    let aftermath = scene::PATIENCE_OF_SERVERS.as_secs() + scene::PATIENCE_OF_POOLS.as_secs();
    assert!(CALM.0 - CALM.1 > fault + aftermath + 5, "no time is calm");
};

/// Whom and what there is to torment.
pub(crate) struct Cast {
    pub(crate) engine: Engine,
    /// The database, not by way of a proxy.
    pub(crate) url: String,
    pub(crate) crew: Crew,
    /// One for each worker; none on SQLite.
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) kill_server: Option<PathBuf>,
    pub(crate) clock: Option<Clock>,
}

/// Where it all happens.
pub(crate) struct Stage {
    cast: Cast,
    begun: Instant,
    until: Instant,
    /// The run has failed.
    is_cut_short: AtomicBool,
    faults: Mutex<Vec<Fault>>,
}

impl Deref for Stage {
    type Target = Cast;

    fn deref(&self) -> &Cast {
        &self.cast
    }
}

impl Stage {
    /// It begins now.
    pub(crate) fn new(cast: Cast, duration: Duration) -> Self {
        let begun = Instant::now();
        Self {
            cast,
            begun,
            until: begun + duration,
            is_cut_short: AtomicBool::new(false),
            faults: Mutex::new(Vec::new()),
        }
    }

    /// It is over for the crew.
    pub(crate) fn into_crew(self) -> Crew {
        self.cast.crew
    }

    /// Whether it is time to stop.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.is_cut_short.load(Ordering::SeqCst)
    }

    /// Ends it before its time.
    pub(crate) fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::SeqCst);
    }

    /// Waits while no fault is to begin: half of every minute, in which nothing excuses what goes wrong.
    pub(crate) fn keep_calm(&self) {
        while !self.is_over() && self.begun.elapsed().as_secs() % CALM.0 >= CALM.1 {
            sleep(PAUSE);
        }
    }

    /// Waits, but not beyond the end.
    pub(crate) fn rest(&self, duration: Duration) {
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
