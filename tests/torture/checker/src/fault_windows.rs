//! The times in which faults explain what goes wrong, for each worker.

use std::collections::BTreeMap;
use std::time::Duration;

use torture_history::{Fault, FaultKind, Moment, workload_spec};

use crate::intervals::Intervals;
use crate::run::Run;

/// For how long after a fault connections may be found to be gone: the longest of the limits that workers have is the
/// server's, for a client that is silent, and the pool takes its time for another connection.
pub(crate) const RECOVERY_TIME: Duration =
    workload_spec::SILENT_CLIENT_TIMEOUT.saturating_add(workload_spec::POOL_TIMEOUT);

/// When each worker was disturbed.
pub(crate) struct FaultWindows(BTreeMap<u32, Intervals>);

impl FaultWindows {
    /// By faults of its own, those of all, and others' of the kinds in `everybodys`: from when a fault began until so long after it as the kind disturbs;
    /// `None` for kinds that do not.
    pub(crate) fn of(
        run: &Run<'_>,
        everybodys: &[FaultKind],
        disturbs: impl Fn(FaultKind) -> Option<Duration>,
    ) -> Self {
        let workers = run.processes.values().map(|process| process.worker);
        let mut fault_windows = BTreeMap::new();
        for worker in workers {
            fault_windows.entry(worker).or_insert_with(|| {
                let own = |fault: &&Fault| {
                    let is_own = fault.worker.is_none_or(|of| of == worker);
                    is_own || everybodys.contains(&fault.kind)
                };
                let faults = run.faults.iter().filter(own);
                Intervals::covering(faults.filter_map(|fault| {
                    let after = disturbs(fault.kind)?;
                    Some((fault.from, fault.until.plus(after)))
                }))
            });
        }
        Self(fault_windows)
    }

    /// Whether a worker was disturbed in a stretch of time.
    pub(crate) fn overlaps(&self, worker: u32, from: Moment, until: Moment) -> bool {
        let intervals = self.0.get(&worker);
        intervals.is_some_and(|intervals| intervals.overlaps(from, until))
    }
}
