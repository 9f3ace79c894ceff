//! Operations that are done, with the rows that they leave.

use torture_checker::{LedgerRow, Pass, SlotUse, Step, Write};
use torture_history::{
    ErrorKind, GuardEvent, InjectedFault, Op, Outcome, Record, Release, Row, SlotHeld, Task,
    TransactionMethod, WaitLimit, workload_spec,
};

use super::{HistoryBuilder, Times, at, ignoring_fault, leasing, locking, panicking, sharing};

/// What is written before something goes wrong.
pub(crate) const BEFORE: [Row; 2] = [
    Row::Counter(workload_spec::FAULT_COUNTERS.start),
    Row::Step(workload_spec::STEP_BEFORE),
];

/// What is written after that, with a lock and a number.
pub(crate) const GRANTED: [Row; 2] = [
    Row::Counter(workload_spec::FAULT_COUNTERS.start + 1),
    Row::Pass(workload_spec::FAULT_SEQUENCE),
];

/// What is written after a panic.
pub(crate) const OUTSIDE: Row = Row::Step(workload_spec::STEP_OUTSIDE);

impl HistoryBuilder {
    /// Locks objects and counts.
    pub(crate) fn lock(&mut self, process: u32, counters: &[u32], times: Times) -> Op {
        let op = self.whole(process, locking(counters), None, Outcome::Done, times);
        self.count(op, counters);
        op
    }

    /// Locks objects, some of them shared, counts, and reads.
    pub(crate) fn share(
        &mut self,
        process: u32,
        counters: &[u32],
        shared: &[u32],
        times: Times,
    ) -> Op {
        let task = sharing(counters, shared);
        let op = self.whole(process, task, None, Outcome::Done, times);
        self.count(op, counters);
        if !shared.is_empty() {
            self.keep(op, &[Row::Step(workload_spec::STEP_READ)]);
        }
        op
    }

    /// The operation adds one to each counter.
    pub(crate) fn count(&mut self, op: Op, counters: &[u32]) {
        for id in counters {
            let counter = self.counter(*id);
            counter.n += 1;
            let (counter, n) = (counter.id, counter.n);
            self.evidence.ledger.push(LedgerRow {
                op: op.0,
                counter,
                n,
            });
        }
    }

    /// Leases a slot and writes at its resource.
    pub(crate) fn lease(
        &mut self,
        process: u32,
        semaphore: &str,
        slot: (u32, i64),
        times: Times,
    ) -> Op {
        let task = leasing(semaphore);
        let op = self.whole(process, task, Some(slot), Outcome::Done, times);
        self.write(op, semaphore, slot);
        op
    }

    /// It renews its lease, with the times of the request and of the answer.
    pub(crate) fn renew(&mut self, op: Op, expired: bool, [requested, told]: [u64; 2]) {
        self.record(
            op.process(),
            Record::Renewed {
                op,
                expired,
                requested: at(requested),
                at: at(told),
            },
        );
    }

    /// It gives its slot back.
    pub(crate) fn release(&mut self, op: Op, is_held: bool, release: Release, ms: u64) {
        self.record(
            op.process(),
            Record::Released {
                op,
                is_held,
                release,
                at: at(ms),
            },
        );
    }

    /// A resource takes the write, whatever its fence.
    pub(crate) fn write(&mut self, op: Op, semaphore: &str, (number, fence): (u32, i64)) {
        let resource = self.resource(semaphore, number);
        resource.version += 1;
        resource.fence = fence;
        let write = Write {
            op: op.0,
            resource: resource.id,
            version: resource.version,
            fence,
        };
        self.evidence.writes.push(write);
    }

    /// Leases a slot, and counts in a transaction that ensures it.
    pub(crate) fn pinned(&mut self, process: u32, slot: (u32, i64), times: Times) -> Op {
        let task = Task::Pinned { lease_ms: 1000 };
        let op = self.whole(process, task, Some(slot), Outcome::Done, times);
        self.count(op, &[workload_spec::PINNED_COUNTERS.start + slot.0 - 1]);
        op
    }

    /// This happens to the slot of its guard.
    pub(crate) fn guard(&mut self, op: Op, event: GuardEvent, ms: u64) {
        let at = at(ms);
        self.record(op.process(), Record::Guard { op, event, at });
    }

    /// Leases a slot for a second, which is released by force and whose loss may be reported.
    pub(crate) fn revoked(&mut self, process: u32, times: [u64; 3], reported: Option<u64>) -> Op {
        let task = Task::Revoked { lease_ms: 1000 };
        self.reporting(process, task, GuardEvent::Revoked, times, reported)
    }

    /// Leases a slot for a second, whose release is requested, which may be seen.
    pub(crate) fn asked(&mut self, process: u32, times: [u64; 3], reported: Option<u64>) -> Op {
        let task = Task::Asked { lease_ms: 1000 };
        self.reporting(process, task, GuardEvent::Asked, times, reported)
    }

    /// Sets the number of permits, or fails to.
    pub(crate) fn set_permits(&mut self, permits: u32, [began, end]: [u64; 2], outcome: Outcome) {
        let op = self.begin(1, Task::SetPermits { permits }, began);
        self.end(op, outcome, None, end);
    }

    /// Leases a slot for a second, whose holder hangs and whose loss may be reported.
    pub(crate) fn stuck(&mut self, process: u32, times: [u64; 3], reported: Option<u64>) -> Op {
        let task = Task::Stuck { lease_ms: 1000 };
        self.reporting(process, task, GuardEvent::Stuck, times, reported)
    }

    /// Leases a slot, to which something happens that its guard may report.
    fn reporting(
        &mut self,
        process: u32,
        task: Task,
        event: GuardEvent,
        [began, entered, happened]: [u64; 3],
        reported: Option<u64>,
    ) -> Op {
        let op = self.begin(process, task, began);
        self.enter(op, Some((1, 1)), entered);
        self.guard(op, event, happened);
        if let Some(reported) = reported {
            self.guard(op, GuardEvent::LossReported, reported);
        }
        self.end(op, Outcome::Done, None, reported.unwrap_or(happened) + 1);
        op
    }

    /// Leases a slot and gives it back, and another thread of the process may get it.
    pub(crate) fn hand_over(
        &mut self,
        process: u32,
        [began, entered, released]: [u64; 3],
        handed_over: Option<u64>,
    ) -> Op {
        let op = self.begin(process, Task::HandOver, began);
        self.enter(op, Some((1, 1)), entered);
        self.release(op, true, Release::InTime, released);
        if let Some(handed_over) = handed_over {
            self.guard(op, GuardEvent::HandedOver, handed_over);
        }
        self.end(op, Outcome::Done, None, handed_over.unwrap_or(released) + 1);
        op
    }

    /// Runs the tick that was due so many milliseconds after 1970, with this fence.
    pub(crate) fn tick(&mut self, process: u32, (fence, ms): (i64, i64), times: Times) -> Op {
        let [began, entered, held_until, ended] = times;
        let op = self.begin(process, Task::Tick { lease_ms: 1000 }, began);
        let due_us = Some(ms * 1000);
        let (number, name) = (1, workload_spec::TIMER.name);
        let slot = SlotHeld {
            other: None,
            number,
            fence,
            due_us,
        };
        self.enter_with(op, Some(slot), entered);
        self.end(op, Outcome::Done, Some(held_until), ended);
        self.write(op, name, (number, fence));
        op
    }

    /// Holds a slot for a transaction.
    pub(crate) fn slot(&mut self, process: u32, times: Times) -> Op {
        let wait = WaitLimit::AtMost(500);
        let op = self.whole(
            process,
            Task::Slot { permits: 1, wait },
            None,
            Outcome::Done,
            times,
        );
        self.use_slot(op);
        op
    }

    /// The operation's transaction held a slot.
    pub(crate) fn use_slot(&mut self, op: Op) {
        let semaphore = workload_spec::HELD_BY_TRANSACTIONS.name.to_owned();
        self.evidence.slot_uses.push(SlotUse {
            op: op.0,
            semaphore,
        });
    }

    /// Draws a number.
    pub(crate) fn pass(&mut self, process: u32, sequence: u32, began: u64, ended: u64) -> Op {
        let op = self.begin(process, Task::Pass { sequence }, began);
        self.end(op, Outcome::Done, None, ended);
        self.draw(op, sequence);
        op
    }

    /// The operation gets the next number.
    pub(crate) fn draw(&mut self, op: Op, sequence: u32) {
        let row = self.sequence(sequence);
        row.last += 1;
        let number = row.last;
        let sequence = i32::try_from(sequence).unwrap();
        self.evidence.passes.push(Pass {
            op: op.0,
            sequence,
            number,
        });
    }

    /// The database takes a row.
    pub(crate) fn wrote(&mut self, op: Op, row: Row, ms: u64) {
        let at = at(ms);
        self.record(op.process(), Record::Wrote { op, row, at });
    }

    /// Something goes wrong, and is ignored.
    pub(crate) fn fault_ignored(&mut self, op: Op, is_lost: bool, ms: u64) {
        self.record(
            op.process(),
            Record::FaultIgnored {
                op,
                kind: Some(ErrorKind::Other),
                is_lost,
                at: at(ms),
            },
        );
    }

    /// It asks for something after that.
    pub(crate) fn requested(&mut self, op: Op, refused: Option<ErrorKind>, ms: u64) {
        let at = at(ms);
        self.record(op.process(), Record::Requested { op, refused, at });
    }

    /// The rows of an operation in which something went wrong are in the database.
    pub(crate) fn keep(&mut self, op: Op, rows: &[Row]) {
        for row in rows {
            match *row {
                Row::Counter(counter) => self.count(op, &[counter]),
                Row::Pass(sequence) => self.draw(op, sequence),
                Row::Step(step) => {
                    let step = i32::try_from(step).unwrap();
                    self.evidence.steps.push(Step { op: op.0, step });
                }
            }
        }
    }

    /// It enters and writes until something goes wrong.
    pub(crate) fn goes_wrong(
        &mut self,
        process: u32,
        method: TransactionMethod,
        injected: InjectedFault,
        is_lost: bool,
        ms: u64,
    ) -> Op {
        let op = self.begin(process, ignoring_fault(method, injected), ms);
        self.enter(op, None, ms + 1);
        for row in BEFORE {
            self.wrote(op, row, ms + 2);
        }
        self.fault_ignored(op, is_lost, ms + 3);
        self.wrote(op, Row::Step(workload_spec::STEP_AFTER), ms + 4);
        op
    }

    /// A fault is ignored, and the transaction continues and is committed.
    pub(crate) fn survives(&mut self, process: u32, ms: u64) -> Op {
        let op = self.goes_wrong(
            process,
            TransactionMethod::Locked,
            InjectedFault::Duplicate,
            false,
            ms,
        );
        for row in GRANTED {
            self.requested(op, None, ms + 5);
            self.wrote(op, row, ms + 5);
        }
        self.end(op, Outcome::Done, Some(ms + 6), ms + 7);
        self.keep(
            op,
            &[
                &BEFORE[..],
                &[Row::Step(workload_spec::STEP_AFTER)],
                &GRANTED,
            ]
            .concat(),
        );
        op
    }

    /// Panics, and is found to have left nothing.
    pub(crate) fn panics(&mut self, process: u32, ms: u64) -> Op {
        let op = self.panics_and(process, None, ms);
        self.keep(op, &[OUTSIDE]);
        op
    }

    /// Panics, and asks for its lock.
    pub(crate) fn panics_and(&mut self, process: u32, refused: Option<ErrorKind>, ms: u64) -> Op {
        let op = self.begin(process, panicking(), ms);
        self.enter(op, None, ms + 1);
        self.wrote(
            op,
            Row::Counter(workload_spec::FAULT_COUNTERS.start + 2),
            ms + 2,
        );
        self.wrote(op, OUTSIDE, ms + 3);
        self.requested(op, refused, ms + 4);
        self.end(op, Outcome::Done, Some(ms + 1), ms + 5);
        op
    }

    /// Moves money.
    pub(crate) fn transfer(&mut self, process: u32, from: u32, to: u32, times: Times) -> Op {
        let task = Task::Transfer { from, to };
        let op = self.whole(process, task, None, Outcome::Done, times);
        self.counter(from).balance -= 7;
        self.counter(to).balance += 7;
        self.count(op, &[from, to]);
        op
    }
}
