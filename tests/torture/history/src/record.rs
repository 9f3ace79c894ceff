//! A line of a worker's history.

use serde::{Deserialize, Serialize};

use crate::{Client, ErrorKind, Moment, Outcome, Release, Task};

/// The number of an operation: no other, of no other process of a run, has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Op(pub i64);

impl Op {
    /// The operation with this count of a process; processes are counted over the whole run.
    pub fn of(process: u32, count: u32) -> Self {
        Self((i64::from(process) << 32) | i64::from(count))
    }

    /// The process.
    pub fn process(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or_default()
    }
}

/// A slot that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotHeld {
    /// Its number: from 1.
    pub number: u32,
    /// That of the other permit, of two.
    pub other: Option<u32>,
    /// Its fence.
    pub fence: i64,
    /// For a tick of a timer: when it was due, in microseconds since 1970.
    pub due_us: Option<i64>,
}

/// A row that an operation has written, of those in which something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Row {
    /// Of a counter, in the ledger.
    Counter(u32),
    /// Of a pass of this sequence.
    Pass(u32),
    /// One that nothing protects: see [`workload_spec`](crate::workload_spec).
    Step(u32),
}

/// What happens to the slot of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardEvent {
    /// Another connection released it by force.
    Revoked,
    /// Another connection requested its release.
    Asked,
    /// Its holder made progress for the last time.
    Stuck,
    /// The guard reported the loss, in every way that it has, or the request.
    LossReported,
    /// After its release it was granted to another thread of the process.
    HandedOver,
}

/// A line of a worker's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The first line.
    Process {
        /// Counted over the whole run.
        process: u32,
        /// Which worker it is; a worker that was killed is started again as another process.
        worker: u32,
        /// As the operating system counts.
        pid: u32,
        /// When.
        at: Moment,
    },
    /// Before anything is sent.
    Began {
        /// Which operation.
        op: Op,
        /// By which thread of the process, or by which task of an asynchronous one: it does one after the other.
        thread: u32,
        /// With which client.
        client: Client,
        /// What it is to do.
        task: Task,
        /// When.
        at: Moment,
    },
    /// When it asked for it, so many requests of its `LockPool` had not got what they asked for that some of them
    /// had no connection.
    Queued {
        /// Which operation.
        op: Op,
        /// When.
        at: Moment,
    },
    /// The pool has given it the connection on which it waits.
    Connected {
        /// Which operation.
        op: Op,
        /// When.
        at: Moment,
    },
    /// It holds what it asked for: after the answer. Again with each attempt of a transaction that is retried.
    Entered {
        /// Which operation.
        op: Op,
        /// The slot, where there is one.
        slot: Option<SlotHeld>,
        /// When.
        at: Moment,
    },
    /// It has drawn a number of a sequence. Again with each attempt of a transaction that is retried.
    Drew {
        /// Which operation.
        op: Op,
        /// The number.
        number: i64,
        /// When.
        at: Moment,
    },
    /// It has renewed its lease, by its own call.
    Renewed {
        /// Which operation.
        op: Op,
        /// Whether the lease had ended; a renewal that failed ends the operation.
        expired: bool,
        /// Before it was sent.
        requested: Moment,
        /// When, after the answer.
        at: Moment,
    },
    /// It has done its work and given its leased slot back, or tried to.
    Released {
        /// Which operation.
        op: Op,
        /// Whether it knew after its work, without asking the database, that it still held the slot.
        is_held: bool,
        /// What became of the slot.
        release: Release,
        /// When, after the answer.
        at: Moment,
    },
    /// What happened to the slot of its guard.
    Guard {
        /// Which operation.
        op: Op,
        /// What.
        event: GuardEvent,
        /// When, after the answer.
        at: Moment,
    },
    /// The database took a row, of an operation in which something goes wrong.
    Wrote {
        /// Which operation.
        op: Op,
        /// Which row.
        row: Row,
        /// When, after the answer.
        at: Moment,
    },
    /// A fault in its transaction is ignored, and it continues. Written before a statement that ends the transaction on
    /// purpose.
    FaultIgnored {
        /// Which operation.
        op: Op,
        /// What the statement failed with.
        kind: Option<ErrorKind>,
        /// Whether the transaction is gone: what it had written can't be read in it any more.
        is_lost: bool,
        /// When.
        at: Moment,
    },
    /// It asked for another lock or a number, after something had gone wrong.
    Requested {
        /// Which operation.
        op: Op,
        /// `None` when it was granted.
        refused: Option<ErrorKind>,
        /// When, after the answer.
        at: Moment,
    },
    /// It has ended.
    Ended {
        /// Which operation.
        op: Op,
        /// How.
        outcome: Outcome,
        /// The last moment at which it knew, without asking the database, that it held what it had asked for: before
        /// COMMIT or the release was sent.
        held_until: Option<Moment>,
        /// When.
        at: Moment,
    },
    /// The last line of a process that has stopped on request.
    Stopped {
        /// When.
        at: Moment,
    },
}
