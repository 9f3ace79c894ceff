//! When each worker was disturbed by faults, and for how long after them.

use std::collections::BTreeMap;
use std::time::Duration;

use torture_history::{Fault, FaultKind, Moment, scene};

use crate::run::Run;
use crate::spans::Spans;

/// For how long after a fault connections may be found to be gone: the longest of the limits that workers have is the
/// server's, for a client that is silent, and the pool takes its time for another connection.
pub(crate) const AFTERMATH: Duration =
    scene::PATIENCE_OF_SERVERS.saturating_add(scene::PATIENCE_OF_POOLS);

/// When each worker was disturbed.
pub(crate) struct Disturbances(BTreeMap<u32, Spans>);

impl Disturbances {
    /// By faults of its own, those of all, and others' of the kinds in `everybodys`: from when a fault began until so long after it as the kind disturbs;
    /// `None` for kinds that do not.
    pub(crate) fn of(
        run: &Run<'_>,
        everybodys: &[FaultKind],
        disturbs: impl Fn(FaultKind) -> Option<Duration>,
    ) -> Self {
        let workers = run.processes.values().map(|process| process.worker);
        let mut disturbances = BTreeMap::new();
        for worker in workers {
            disturbances.entry(worker).or_insert_with(|| {
                let own = |fault: &&Fault| {
                    let is_own = fault.worker.is_none_or(|of| of == worker);
                    is_own || everybodys.contains(&fault.kind)
                };
                let faults = run.faults.iter().filter(own);
                Spans::covering(faults.filter_map(|fault| {
                    let after = disturbs(fault.kind)?;
                    Some((fault.from, fault.until.plus(after)))
                }))
            });
        }
        Self(disturbances)
    }

    /// Whether a worker was disturbed in a stretch of time.
    pub(crate) fn touch(&self, worker: u32, from: Moment, until: Moment) -> bool {
        let spans = self.0.get(&worker);
        spans.is_some_and(|spans| spans.touch(from, until))
    }
}
