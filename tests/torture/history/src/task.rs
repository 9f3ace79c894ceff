//! What a worker sets out to do.

use serde::{Deserialize, Serialize};

use crate::workload_spec;

/// How long a worker is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitLimit {
    /// As long as it takes.
    Forever,
    /// Not at all.
    No,
    /// At most so many milliseconds.
    AtMost(u64),
}

/// How the transaction is run in which something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransactionMethod {
    /// By the method that takes the lock.
    Locked,
    /// By the method that runs a transaction; its closure takes the lock.
    Transaction,
    /// By Diesel's own `transaction`, whose closure takes the lock.
    Diesel,
}

/// What goes wrong in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedFault {
    /// It is the victim of a deadlock, most of the time.
    Deadlock,
    /// It waits for a row for too long.
    LockTimeout,
    /// It inserts a row that is there.
    Duplicate,
    /// A duplicate key with `INSERT OR ROLLBACK` (SQLite).
    DuplicateOrRollback,
    /// It sends COMMIT as text.
    Commit,
    /// It sends ROLLBACK as text.
    Rollback,
    /// It begins a nested transaction by hand and does not end it.
    LeftOpen,
}

/// What a transaction asks for in which something goes wrong, beside its first lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A number before.
    NumberBefore,
    /// A number after.
    Number,
    /// Another lock after.
    Lock,
    /// Another lock and a number after.
    LockAndNumber,
}

/// Which objects are locked, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locking {
    /// The counters of those that are locked exclusively.
    pub counters: Vec<u32>,
    /// The counters of those whose lock is shared.
    pub shared: Vec<u32>,
    /// Whether the rows of the exclusive locks are kept.
    pub kept: bool,
    /// How long the locks are waited for.
    pub wait: WaitLimit,
}

/// What a worker sets out to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Lock objects by one request. Add one to the counter of each whose lock is exclusive, by reading and writing it. Read the
    /// counters of the others twice, and insert [`workload_spec::STEP_READ`].
    Lock(Locking),
    /// Lease a slot, and write its fence to the slot's resource.
    Lease {
        /// Which semaphore.
        semaphore: String,
        /// How many permits at once: 1 or 2.
        permits: u32,
        /// Whether the lease is renewed in the background.
        renewed: bool,
        /// How long the lease is.
        lease_ms: u64,
        /// How long the slot is waited for.
        wait: WaitLimit,
    },
    /// Lease a slot, and add one to the slot's counter in a transaction that makes sure of the slot.
    Pinned {
        /// How long the lease is.
        lease_ms: u64,
    },
    /// Lease a slot with a guard, release it by force on another connection, and wait for the guard to report the loss.
    Revoked {
        /// How long the lease is.
        lease_ms: u64,
    },
    /// Lease a slot with a guard, request its release on another connection, and wait for the guard to show that.
    Asked {
        /// How long the lease is.
        lease_ms: u64,
    },
    /// Lease a slot with a guard, report progress for longer than the lease, hang then, and wait for the guard to report the loss.
    Stuck {
        /// How long the lease is, and how long it is renewed without progress.
        lease_ms: u64,
    },
    /// Lease a slot with a guard, and release it while the same process waits for it in another thread.
    HandOver,
    /// Take part in a job on a timer until one tick was run, or for [`workload_spec::TICK_WAIT_MS`], and write the fence of the
    /// tick to the job's resource.
    Tick {
        /// How long the lease is.
        lease_ms: u64,
    },
    /// Hold slots for one transaction.
    Slot {
        /// How many permits at once: 1 or 2.
        permits: u32,
        /// How long the slot is waited for.
        wait: WaitLimit,
    },
    /// Draw a number of a sequence, and insert a pass with it.
    Pass {
        /// Which sequence.
        sequence: u32,
    },
    /// Move money between two accounts, and add one to the counter of each.
    Transfer {
        /// Where it is taken.
        from: u32,
        /// Where it goes.
        to: u32,
    },
    /// Set the number of permits of [`workload_spec::LIMITED`].
    SetPermits {
        /// The number.
        permits: u32,
    },
    /// Remove what nobody holds: kept rows of locks, and free slots.
    Purge,
    /// Lock an object, ignore an error of the database, continue, and return `Ok` or another error.
    IgnoreFault {
        /// How the transaction is run.
        method: TransactionMethod,
        /// What goes wrong.
        injected: InjectedFault,
        /// Whether it goes wrong in a nested transaction.
        nested: bool,
        /// What is asked for beside the lock.
        request: Request,
        /// The counters of the first lock, and of the other.
        counters: [u32; 2],
    },
    /// Panic while an object is locked, and go on with the connection.
    Panic {
        /// How the transaction is run.
        method: TransactionMethod,
        /// The counter.
        counter: u32,
        /// In how many transactions inside of the first.
        depth: u32,
    },
}

impl Task {
    /// The names of all kinds.
    pub const NAMES: [&str; 17] = [
        "lock",
        "shared lock",
        "renewed lease",
        "lease",
        "pinned",
        "revoked",
        "asked",
        "stuck",
        "hand-over",
        "tick",
        "slot",
        "pass",
        "transfer",
        "set permits",
        "purge",
        "ignored fault",
        "panic",
    ];

    /// How long what it asks for is waited for; numbers, accounts and purges have no such limit.
    pub fn wait_limit(&self) -> Option<WaitLimit> {
        match self {
            Self::Lock(Locking { wait, .. })
            | Self::Lease { wait, .. }
            | Self::Slot { wait, .. } => Some(*wait),
            Self::Pinned { .. }
            | Self::Revoked { .. }
            | Self::Asked { .. }
            | Self::Stuck { .. }
            | Self::HandOver => Some(WaitLimit::AtMost(workload_spec::SLOT_WAIT_MS)),
            Self::Tick { .. } => Some(WaitLimit::AtMost(workload_spec::TICK_WAIT_MS)),
            Self::Pass { .. }
            | Self::Transfer { .. }
            | Self::SetPermits { .. }
            | Self::Purge
            | Self::IgnoreFault { .. }
            | Self::Panic { .. } => None,
        }
    }

    /// Whether a guard holds its slot, which has connections of its own.
    pub fn has_guard(&self) -> bool {
        matches!(
            self,
            Self::Lease { renewed: true, .. }
                | Self::Revoked { .. }
                | Self::Asked { .. }
                | Self::Stuck { .. }
                | Self::HandOver
                | Self::Tick { .. }
        )
    }

    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lock(Locking { shared, .. }) if shared.is_empty() => "lock",
            Self::Lock(_) => "shared lock",
            Self::Lease { renewed: true, .. } => "renewed lease",
            Self::Lease { renewed: false, .. } => "lease",
            Self::Pinned { .. } => "pinned",
            Self::Revoked { .. } => "revoked",
            Self::Asked { .. } => "asked",
            Self::Stuck { .. } => "stuck",
            Self::HandOver => "hand-over",
            Self::Tick { .. } => "tick",
            Self::Slot { .. } => "slot",
            Self::Pass { .. } => "pass",
            Self::Transfer { .. } => "transfer",
            Self::SetPermits { .. } => "set permits",
            Self::Purge => "purge",
            Self::IgnoreFault { .. } => "ignored fault",
            Self::Panic { .. } => "panic",
        }
    }
}
