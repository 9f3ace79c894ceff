//! Histories and evidence that belong together, built operation by operation, with times in milliseconds.

pub(crate) mod operations;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use torture_checker::{
    Counter, Evidence, LedgerRow, Limits, Resource, Sequence, Slot, Verdict, Violation, check,
};
use torture_history::{
    Client, ErrorKind, Fault, FaultKind, Histories, InjectedFault, Locking, Moment, Op, Outcome,
    Record, Request, SlotHeld, Task, TransactionMethod, WaitLimit, workload_spec,
};

/// When the run begins, in nanoseconds.
const BEGINNING: u64 = 7_000_000_000_000;

/// The moment `ms` milliseconds after the run's beginning.
pub(crate) fn at(ms: u64) -> Moment {
    Moment(BEGINNING + ms * 1_000_000)
}

/// An outcome.
pub(crate) fn failed(kind: ErrorKind) -> Outcome {
    let text = format!("it was {kind:?}");
    Outcome::Failed { kind, text }
}

/// When an operation began, entered, was about to commit, and ended.
pub(crate) type Times = [u64; 4];

/// A task of the kind that takes object locks.
pub(crate) fn locking(counters: &[u32]) -> Task {
    sharing(counters, &[])
}

/// A task that locks the objects of `counters` exclusively, and those of `shared` shared.
pub(crate) fn sharing(counters: &[u32], shared: &[u32]) -> Task {
    Task::Lock(Locking {
        counters: counters.to_vec(),
        shared: shared.to_vec(),
        kept: false,
        wait: WaitLimit::Forever,
    })
}

/// A task that locks the object 1 and waits so long.
pub(crate) fn locking_within(wait: WaitLimit) -> Task {
    Task::Lock(Locking {
        counters: vec![1],
        shared: Vec::new(),
        kept: true,
        wait,
    })
}

/// A task of the kind that leases a slot.
pub(crate) fn leasing(semaphore: &str) -> Task {
    Task::Lease {
        permits: 1,
        semaphore: semaphore.to_owned(),
        renewed: false,
        lease_ms: 1000,
        wait: WaitLimit::No,
    }
}

/// A task of the kind in which something goes wrong.
pub(crate) fn ignoring_fault(method: TransactionMethod, injected: InjectedFault) -> Task {
    let first = workload_spec::FAULT_COUNTERS.start;
    Task::IgnoreFault {
        method,
        injected,
        nested: false,
        request: Request::LockAndNumber,
        counters: [first, first + 1],
    }
}

/// A task of the kind that panics.
pub(crate) fn panicking() -> Task {
    Task::Panic {
        method: TransactionMethod::Locked,
        counter: workload_spec::FAULT_COUNTERS.start + 2,
        depth: 1,
    }
}

/// A run.
pub(crate) struct HistoryBuilder {
    pub(crate) records: BTreeMap<u32, Vec<Record>>,
    /// Processes that never write that they have stopped.
    pub(crate) vanished: BTreeSet<u32>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) evidence: Evidence,
    pub(crate) limits: Limits,
    operations: u32,
}

impl HistoryBuilder {
    /// Nothing was done yet.
    pub(crate) fn new() -> Self {
        let counters = (0..workload_spec::LOCKED_COUNTERS)
            .chain(workload_spec::ACCOUNTS)
            .chain(workload_spec::PINNED_COUNTERS)
            .chain(workload_spec::FAULT_COUNTERS);
        let counters = counters.map(|id| Counter {
            id: i32::try_from(id).unwrap(),
            n: 0,
            balance: 0,
        });
        let resources = workload_spec::resources().map(|id| Resource {
            id: i32::try_from(id).unwrap(),
            fence: 0,
            version: 0,
        });
        let slots = workload_spec::semaphores().flat_map(|semaphore| {
            (1..=semaphore.permits).map(move |number| Slot {
                name: semaphore.name.to_owned(),
                number: i32::try_from(number).unwrap(),
                holder: None,
                expires_us: 0,
            })
        });
        Self {
            records: BTreeMap::new(),
            vanished: BTreeSet::new(),
            faults: Vec::new(),
            evidence: Evidence {
                counters: counters.collect(),
                resources: resources.collect(),
                slots: slots.collect(),
                has_server: true,
                now_us: 1_000_000,
                ..Evidence::default()
            },
            limits: Limits {
                longest: Duration::from_secs(10),
                jump_tolerance: Duration::from_millis(10),
                ..Limits::default()
            },
            operations: 0,
        }
    }

    /// What was found, without the kinds of which there is none.
    pub(crate) fn found(&self) -> Vec<(Violation, u64)> {
        let verdict = self.verdict().expect("the histories are consistent");
        let found = verdict.violations.iter();
        let found = found.filter(|(_, found)| found.count > 0);
        found.map(|(kind, found)| (*kind, found.count)).collect()
    }

    /// Nothing is wrong.
    #[track_caller]
    pub(crate) fn assert_no_violations(&self) {
        self.finds(&[]);
    }

    /// Asserts that exactly these violations are found, as often as given.
    #[track_caller]
    pub(crate) fn finds(&self, expected: &[(Violation, u64)]) {
        let verdict = self.verdict().expect("the histories are consistent");
        assert_eq!(self.found(), expected, "{verdict}");
    }

    /// The verdict.
    pub(crate) fn verdict(&self) -> anyhow::Result<Verdict> {
        check(&self.histories(), &self.evidence, &self.limits)
    }

    /// The histories, in which all processes have stopped that did not vanish.
    pub(crate) fn histories(&self) -> Histories {
        let mut processes = self.records.clone();
        for (process, records) in &mut processes {
            if !self.vanished.contains(process) {
                records.push(Record::Stopped { at: at(60_000) });
            }
        }
        Histories {
            processes: processes.into_values().collect(),
            faults: self.faults.clone(),
        }
    }

    /// The nemesis kills a process.
    pub(crate) fn kill(&mut self, process: u32) {
        self.vanished.insert(process);
        self.limits.killed.insert(process);
    }

    /// The nemesis does something.
    pub(crate) fn fault(&mut self, kind: FaultKind, worker: Option<u32>, from: u64, until: u64) {
        let (from, until) = (at(from), at(until));
        let ahead = match kind {
            FaultKind::ClockAhead => Some((from, from)),
            FaultKind::ClockBack => Some((until, until)),
            _ => None,
        };
        self.faults.push(Fault {
            kind,
            worker,
            from,
            until,
            ahead,
        });
    }

    /// The worker of a process: process 11 comes after process 1.
    fn worker(process: u32) -> u32 {
        process % 10
    }

    /// Writes a line.
    pub(crate) fn record(&mut self, process: u32, record: Record) {
        let first = Record::Process {
            process,
            worker: Self::worker(process),
            pid: 1000 + process,
            at: at(0),
        };
        let records = self.records.entry(process).or_insert_with(|| vec![first]);
        records.push(record);
    }

    /// An operation begins.
    pub(crate) fn begin(&mut self, process: u32, task: Task, ms: u64) -> Op {
        self.begin_with(Client::R2d2, process, task, ms)
    }

    /// An operation of this client begins.
    pub(crate) fn begin_with(&mut self, client: Client, process: u32, task: Task, ms: u64) -> Op {
        self.operations += 1;
        let op = Op::of(process, self.operations);
        // Each has a thread of its own.
        let (thread, at) = (self.operations, at(ms));
        self.record(
            process,
            Record::Began {
                op,
                thread,
                client,
                task,
                at,
            },
        );
        op
    }

    /// It enters.
    pub(crate) fn enter(&mut self, op: Op, slot: Option<(u32, i64)>, ms: u64) {
        let slot = slot.map(|(number, fence)| SlotHeld {
            other: None,
            number,
            fence,
            due_us: None,
        });
        self.enter_with(op, slot, ms);
    }

    /// It enters with this slot.
    pub(crate) fn enter_with(&mut self, op: Op, slot: Option<SlotHeld>, ms: u64) {
        self.record(
            op.process(),
            Record::Entered {
                op,
                slot,
                at: at(ms),
            },
        );
    }

    /// It draws a number.
    pub(crate) fn drew(&mut self, op: Op, number: i64, ms: u64) {
        let at = at(ms);
        self.record(op.process(), Record::Drew { op, number, at });
    }

    /// It ends.
    pub(crate) fn end(&mut self, op: Op, outcome: Outcome, held_until: Option<u64>, ms: u64) {
        let held_until = held_until.map(at);
        self.record(
            op.process(),
            Record::Ended {
                op,
                outcome,
                held_until,
                at: at(ms),
            },
        );
    }

    /// All of an operation's records.
    pub(crate) fn whole(
        &mut self,
        process: u32,
        task: Task,
        slot: Option<(u32, i64)>,
        outcome: Outcome,
        [began, entered, held_until, ended]: Times,
    ) -> Op {
        let op = self.begin(process, task, began);
        self.enter(op, slot, entered);
        self.end(op, outcome, Some(held_until), ended);
        op
    }

    /// A counter's row.
    pub(crate) fn counter(&mut self, id: u32) -> &mut Counter {
        let mut counters = self.evidence.counters.iter_mut();
        counters
            .find(|row| i64::from(row.id) == i64::from(id))
            .unwrap()
    }

    /// A resource's row.
    pub(crate) fn resource(&mut self, semaphore: &str, number: u32) -> &mut Resource {
        let id = i64::from(workload_spec::resource(semaphore, number));
        let mut resources = self.evidence.resources.iter_mut();
        resources.find(|row| i64::from(row.id) == id).unwrap()
    }

    /// The row of a sequence, inserted by the first draw.
    pub(crate) fn sequence(&mut self, sequence: u32) -> &mut Sequence {
        let scope = sequence.to_string();
        let rows = &mut self.evidence.sequences;
        if let Some(there) = rows.iter().position(|row| row.scope == scope) {
            return &mut rows[there];
        }
        let name = workload_spec::SEQUENCES_NAME.to_owned();
        rows.push(Sequence {
            name,
            scope,
            last: 0,
        });
        rows.last_mut().unwrap()
    }

    /// The ledger's row of an operation.
    pub(crate) fn ledger(&mut self, op: Op, counter: u32) -> &mut LedgerRow {
        let mut rows = self.evidence.ledger.iter_mut();
        let counter = i64::from(counter);
        rows.find(|row| row.op == op.0 && i64::from(row.counter) == counter)
            .unwrap()
    }
}
