//! All operations of a run, from the histories of its processes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use torture_history::{Client, Fault, FaultKind, Histories, Moment, Op, Record, Task};

use crate::intervals::Intervals;
use crate::operation::{End, Entered, Operation, Released, Renewed};

/// A process of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) worker: u32,
    /// As the operating system counts.
    pub(crate) pid: u32,
    /// Its first record.
    pub(crate) from: Moment,
    /// Its last record: it was alive.
    pub(crate) until: Moment,
    /// Whether it stopped on request.
    pub(crate) stopped: bool,
}

/// All operations of a run.
pub(crate) struct Run<'a> {
    /// In the order of their numbers.
    pub(crate) operations: Vec<Operation<'a>>,
    pub(crate) processes: BTreeMap<u32, Process>,
    pub(crate) faults: &'a [Fault],
    /// Its beginning.
    pub(crate) from: Moment,
    /// The last record of any process.
    pub(crate) until: Moment,
    /// When the processes of each worker were stopped.
    paused: BTreeMap<u32, Intervals>,
}

impl<'a> Run<'a> {
    /// Joins the records. A history that contradicts itself is an error.
    pub(crate) fn of(histories: &'a Histories) -> Result<Self> {
        let mut operations = Vec::new();
        let mut processes = BTreeMap::new();
        for records in &histories.processes {
            read_process(records, &mut operations, &mut processes)?;
        }
        operations.sort_unstable_by_key(|operation: &Operation<'_>| operation.op);
        let from = processes.values().map(|process| process.from).min();
        let until = processes.values().map(|process| process.until).max();
        for fault in &histories.faults {
            let kind = fault.kind.name();
            ensure!(
                fault.from <= fault.until,
                "a fault ({kind}) ends before it begins"
            );
        }
        let paused = pauses(&histories.faults, &processes);
        Ok(Self {
            operations,
            processes,
            faults: &histories.faults,
            from: from.unwrap_or_default(),
            until: until.unwrap_or_default(),
            paused,
        })
    }

    /// The operation with this number, if any set out to do it.
    pub(crate) fn find(&self, op: i64) -> Option<&Operation<'a>> {
        let found = self
            .operations
            .binary_search_by_key(&Op(op), |operation| operation.op);
        self.operations.get(found.ok()?)
    }

    /// When it came back; when it did not, the last moment at which its process was alive.
    pub(crate) fn end_of(&self, operation: &Operation<'_>) -> Moment {
        let alive = self.processes.get(&operation.op.process());
        let alive = alive.map_or(operation.began, |process| process.until);
        operation.end.map_or(alive, |end| end.at)
    }

    /// How long it took, without the time for which its process was paused.
    pub(crate) fn took(&self, operation: &Operation<'_>) -> Duration {
        let until = self.end_of(operation);
        let paused = self.paused.get(&operation.worker);
        let paused = paused.map(|paused| paused.within(operation.began, until));
        until
            .since(operation.began)
            .saturating_sub(paused.unwrap_or_default())
    }

    /// A moment, counted from the run's beginning.
    pub(crate) fn clock(&self, moment: Moment) -> String {
        format!("{:.6} s", moment.since(self.from).as_secs_f64())
    }

    /// An operation by its number, for people.
    pub(crate) fn describe(&self, op: i64) -> String {
        match self.find(op) {
            Some(operation) => self.describe_operation(operation),
            None => format!("{} that nobody began", number(Op(op))),
        }
    }

    /// An operation, for people.
    pub(crate) fn describe_operation(&self, operation: &Operation<'_>) -> String {
        let end = match operation.end {
            Some(end) => self.clock(end.at),
            None => "no end".to_owned(),
        };
        format!(
            "{} ({} of worker {}, process {}, {}, {} to {end})",
            number(operation.op),
            operation.task.name(),
            operation.worker,
            operation.op.process(),
            operation.client.name(),
            self.clock(operation.began),
        )
    }
}

/// The number as people read it: process and count.
fn number(op: Op) -> String {
    format!("operation {}-{}", op.process(), op.0 & i64::from(u32::MAX))
}

fn pauses(faults: &[Fault], processes: &BTreeMap<u32, Process>) -> BTreeMap<u32, Intervals> {
    let mut paused = BTreeMap::new();
    for worker in processes.values().map(|process| process.worker) {
        if let Entry::Vacant(vacant) = paused.entry(worker) {
            let own = faults.iter().filter(|fault| {
                fault.kind == FaultKind::Pause && fault.worker.is_none_or(|of| of == worker)
            });
            vacant.insert(Intervals::covering(
                own.map(|fault| (fault.from, fault.until)),
            ));
        }
    }
    paused
}

/// One history. An empty one is that of a process that was killed before it wrote.
fn read_process<'a>(
    records: &'a [Record],
    operations: &mut Vec<Operation<'a>>,
    processes: &mut BTreeMap<u32, Process>,
) -> Result<()> {
    let Some((first, records)) = records.split_first() else {
        return Ok(());
    };
    let Record::Process {
        process: number,
        worker,
        pid,
        at,
    } = *first
    else {
        bail!("a history begins with {first:?} and not with its process");
    };
    let mut reading = Reading {
        number,
        process: Process {
            worker,
            pid,
            from: at,
            until: at,
            stopped: false,
        },
        begun: HashMap::new(),
        busy: HashSet::new(),
        operations: Vec::new(),
    };
    for record in records {
        reading
            .read(record)
            .with_context(|| format!("process {number}: {record:?}"))?;
    }
    for operation in &reading.operations {
        operation
            .verify()
            .with_context(|| format!("process {number}: {operation:?}"))?;
    }
    operations.append(&mut reading.operations);
    let before = processes.insert(number, reading.process);
    ensure!(
        before.is_none(),
        "there are two histories of process {number}"
    );
    Ok(())
}

/// A history, as far as it is read.
struct Reading<'a> {
    number: u32,
    process: Process,
    begun: HashMap<Op, usize>,
    /// Threads that are at an operation.
    busy: HashSet<u32>,
    operations: Vec<Operation<'a>>,
}

impl<'a> Reading<'a> {
    fn read(&mut self, record: &'a Record) -> Result<()> {
        ensure!(!self.process.stopped, "it had stopped");
        let at = match record {
            Record::Process { .. } => bail!("a second beginning"),
            Record::Began {
                op,
                thread,
                client,
                task,
                at,
            } => {
                self.begin(*op, *thread, *client, task, *at)?;
                *at
            }
            Record::Queued { op, at } => {
                self.open(*op)?.queued = true;
                *at
            }
            Record::Entered { op, slot, at } => {
                let (slot, at) = (*slot, *at);
                self.open(*op)?.entered.push(Entered { slot, at });
                at
            }
            Record::Connected { op, at } => {
                self.open(*op)?.connected = Some(*at);
                *at
            }
            Record::Drew { op, number, at } => {
                self.open(*op)?.drawn = Some(*number);
                *at
            }
            Record::Renewed {
                op,
                expired,
                requested,
                at,
            } => {
                self.open(*op)?.renewed.push(Renewed {
                    expired: *expired,
                    requested: *requested,
                    at: *at,
                });
                *at
            }
            Record::Released {
                op,
                is_held,
                release,
                at,
            } => {
                let released = Released {
                    is_held: *is_held,
                    release,
                    at: *at,
                };
                let before = self.open(*op)?.released.replace(released);
                ensure!(before.is_none(), "the slot was given back before");
                *at
            }
            Record::Guard { op, event, at } => {
                self.open(*op)?.guard.push((*event, *at));
                *at
            }
            Record::Wrote { op, row, at } => {
                self.open(*op)?.wrote.push(*row);
                *at
            }
            Record::FaultIgnored {
                op, is_lost, at, ..
            } => {
                self.open(*op)?.lost |= is_lost;
                *at
            }
            Record::Requested { op, refused, at } => {
                self.open(*op)?.requested(*refused, *at);
                *at
            }
            Record::Ended {
                op,
                outcome,
                held_until,
                at,
            } => {
                let operation = self.open(*op)?;
                operation.end = Some(End {
                    outcome,
                    held_until: *held_until,
                    at: *at,
                });
                let thread = operation.thread;
                self.busy.remove(&thread);
                *at
            }
            Record::Stopped { at } => {
                self.process.stopped = true;
                *at
            }
        };
        // Threads write one after the other, but each looks at the clock before it writes.
        self.process.from = self.process.from.min(at);
        self.process.until = self.process.until.max(at);
        Ok(())
    }

    fn begin(
        &mut self,
        op: Op,
        thread: u32,
        client: Client,
        task: &'a Task,
        began: Moment,
    ) -> Result<()> {
        ensure!(
            op.process() == self.number,
            "the operation is another process's"
        );
        let before = self.begun.insert(op, self.operations.len());
        ensure!(before.is_none(), "the operation begins twice");
        ensure!(
            self.busy.insert(thread),
            "its thread is at another operation"
        );
        self.operations.push(Operation {
            op,
            worker: self.process.worker,
            thread,
            client,
            task,
            began,
            queued: false,
            connected: None,
            drawn: None,
            entered: Vec::new(),
            renewed: Vec::new(),
            released: None,
            guard: Vec::new(),
            wrote: Vec::new(),
            lost: false,
            requested: Vec::new(),
            end: None,
            committed: false,
        });
        Ok(())
    }

    /// The operation, which has begun and not ended.
    fn open(&mut self, op: Op) -> Result<&mut Operation<'a>> {
        let index = self.begun.get(&op).context("the operation has not begun")?;
        let operation = self.operations.get_mut(*index);
        let operation = operation.context("the operation has not begun")?;
        ensure!(operation.end.is_none(), "the operation has ended");
        Ok(operation)
    }
}
