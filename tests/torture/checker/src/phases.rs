//! Throughput while nothing fails and during each kind of fault, and how long faults kept others waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use torture_history::{Client, Fault, FaultKind, Moment, Task};

use crate::intervals::Intervals;
use crate::operation::Operation;
use crate::run::Run;

/// What was done in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phase {
    /// How long it was.
    pub seconds: f64,
    /// How many operations ended in it and were done.
    pub done: u64,
    /// The same per second.
    pub per_second: f64,
}

/// Median and maximum over several faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// The median.
    pub median_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How long faults kept workers waiting that were not their target.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// How many faults.
    pub faults: u64,
    /// The longest operation that overlapped a fault, without the time for which its own process was paused. Leases do not
    /// count: they are held for as long as it pleases.
    pub operations: Times,
    /// The longest time in which a worker completed nothing, and which overlapped a fault.
    pub idle: Times,
    /// The longest time in which no worker completed anything by this client, and which overlapped a fault of a server.
    pub idle_clients: BTreeMap<&'static str, Times>,
    /// What was done meanwhile.
    #[serde(flatten)]
    pub phase: Phase,
}

/// Throughput and waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// While nothing failed.
    pub calm: Phase,
    /// The longest operation that no fault overlapped: what waits are to be compared with.
    pub calm_max_ms: f64,
    /// The longest operation of all, which has to be shorter than [`Limits::longest`](crate::Limits::longest), in words.
    pub longest: String,
    /// How long that took.
    pub longest_ms: f64,
    /// During each kind of fault.
    pub faults: BTreeMap<FaultKind, Waits>,
}

impl Phases {
    pub(crate) fn of(run: &Run<'_>) -> Self {
        let any = Intervals::covering(run.faults.iter().map(|fault| (fault.from, fault.until)));
        let mut calm_max = Duration::ZERO;
        for operation in run.operations.iter().filter(|one| waits(one)) {
            if !any.overlaps(operation.began, run.end_of(operation)) {
                calm_max = calm_max.max(run.took(operation));
            }
        }
        let longest = run.operations.iter().max_by_key(|one| run.took(one));
        let calm = run.until.since(run.from);
        let calm = calm.saturating_sub(any.within(run.from, run.until));
        let calm = phase(run, calm, |at| !any.overlaps(at, at));
        let wait_times = WaitTimes::of(run);
        let idle_workers = IdleTimes::of(run, |operation| operation.worker);
        let idle_clients = IdleTimes::of(run, |operation| operation.client);
        let mut faults = BTreeMap::new();
        for kind in FaultKind::ALL {
            let of_kind: Vec<_> = run
                .faults
                .iter()
                .filter(|fault| fault.kind == kind)
                .collect();
            if of_kind.is_empty() {
                continue;
            }
            let intervals =
                Intervals::covering(of_kind.iter().map(|fault| (fault.from, fault.until)));
            let time = intervals.within(run.from, run.until);
            let all = of_kind.iter().copied();
            let waits = Waits {
                faults: u64::try_from(of_kind.len()).unwrap_or(u64::MAX),
                operations: Times::of(all.clone().map(|fault| wait_times.longest(fault))),
                idle: Times::of(all.map(|fault| {
                    idle_workers.longest(fault, |worker| fault.worker != Some(worker))
                })),
                idle_clients: idle_clients.by_client(&of_kind),
                phase: phase(run, time, |at| intervals.overlaps(at, at)),
            };
            faults.insert(kind, waits);
        }
        Self {
            calm,
            calm_max_ms: milliseconds(Some(calm_max)),
            longest: longest.map_or_else(String::new, |one| run.describe_operation(one)),
            longest_ms: milliseconds(longest.map(|one| run.took(one))),
            faults,
        }
    }
}

impl Times {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        Self {
            median_ms: milliseconds(times.get(times.len().saturating_sub(1) / 2).copied()),
            max_ms: milliseconds(times.last().copied()),
        }
    }
}

fn phase(run: &Run<'_>, time: Duration, within: impl Fn(Moment) -> bool) -> Phase {
    let ends = run.operations.iter().filter_map(Operation::done);
    let done = ends.filter(|end| within(end.at)).count();
    let seconds = time.as_secs_f64();
    let per_second = f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / seconds;
    Phase {
        seconds,
        done: u64::try_from(done).unwrap_or(u64::MAX),
        per_second: if seconds > 0.0 { per_second } else { 0.0 },
    }
}

fn milliseconds(time: Option<Duration>) -> f64 {
    time.unwrap_or_default().as_secs_f64() * 1000.0
}

/// Whether it takes as long as others keep it waiting, and not as long as it likes.
fn waits(operation: &Operation<'_>) -> bool {
    let task = operation.task;
    !task.has_guard() && !matches!(task, Task::Lease { .. } | Task::Pinned { .. })
}

/// Operations in the order of their beginnings.
struct WaitTimes<'r, 'a> {
    run: &'r Run<'a>,
    by_beginning: Vec<&'r Operation<'a>>,
    longest: Duration,
}

impl<'r, 'a> WaitTimes<'r, 'a> {
    fn of(run: &'r Run<'a>) -> Self {
        let all = run.operations.iter();
        let mut by_beginning: Vec<_> = all.filter(|one| waits(one)).collect();
        by_beginning.sort_unstable_by_key(|operation| operation.began);
        let times = by_beginning.iter();
        let longest = times.map(|operation| run.end_of(operation).since(operation.began));
        Self {
            run,
            longest: longest.max().unwrap_or_default(),
            by_beginning,
        }
    }

    /// The longest time that an operation took which overlaps the fault, and was not itself its target.
    fn longest(&self, fault: &Fault) -> Duration {
        let after = |at: Moment| self.by_beginning.partition_point(|one| one.began <= at);
        let all = self.by_beginning.get(..after(fault.until));
        // None that began earlier lasted until then.
        let overlapping = all
            .unwrap_or_default()
            .iter()
            .rev()
            .take_while(|one| fault.from.since(one.began) <= self.longest);
        overlapping
            .filter(|one| self.run.end_of(one) >= fault.from)
            .filter(|one| fault.worker != Some(one.worker))
            .map(|one| self.run.took(one))
            .max()
            .unwrap_or_default()
    }
}

/// Times in which a worker, or a client, completed nothing: whose, from when, until when.
struct IdleTimes<K>(Vec<(K, Moment, Moment)>);

impl<K: Copy + Ord> IdleTimes<K> {
    fn of(run: &Run<'_>, whose: impl Fn(&Operation<'_>) -> K) -> Self {
        let mut ends: BTreeMap<K, Vec<Moment>> = BTreeMap::new();
        for operation in &run.operations {
            let ends = ends.entry(whose(operation)).or_default();
            ends.extend(operation.done().map(|end| end.at));
        }
        let mut idle = Vec::new();
        for (whose, mut ends) in ends {
            ends.extend([run.from, run.until]);
            ends.sort_unstable();
            idle.extend(ends.windows(2).map(|pair| (whose, pair[0], pair[1])));
        }
        Self(idle)
    }

    /// The longest one of these that overlaps the fault.
    fn longest(&self, fault: &Fault, of: impl Fn(K) -> bool) -> Duration {
        let those = self.0.iter().filter(|idle| of(idle.0));
        those
            .filter(|(_, from, until)| *from <= fault.until && *until >= fault.from)
            .map(|(_, from, until)| until.since(*from))
            .max()
            .unwrap_or_default()
    }
}

impl IdleTimes<Client> {
    fn by_client(&self, faults: &[&Fault]) -> BTreeMap<&'static str, Times> {
        let of_server = |fault: &&&Fault| fault.worker.is_none();
        if !faults.iter().any(|fault| of_server(&fault)) {
            return BTreeMap::new();
        }
        let times = |client| {
            let faults = faults.iter().filter(of_server);
            Times::of(faults.map(|fault| self.longest(fault, |of| of == client)))
        };
        let clients: BTreeSet<Client> = self.0.iter().map(|idle| idle.0).collect();
        let clients = clients.into_iter();
        clients
            .map(|client| (client.name(), times(client)))
            .collect()
    }
}
