//! The specification of the workload, which workers and the checker share: names, numbers and limits.

use std::time::Duration;

/// How long a thread of a worker waits for a connection from its pool.
pub const POOL_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long a server gives up a client that is silent while it could go on: whole seconds, as servers count.
pub const SILENT_CLIENT_TIMEOUT: Duration = Duration::from_secs(8);

/// Objects that are locked before their counter is changed: counters 0 to this.
pub const LOCKED_COUNTERS: u32 = 6;

/// Counters of accounts, which transactions change after reading them with a row lock of the database.
pub const ACCOUNTS: std::ops::Range<u32> = 100..104;

/// Counters of slots that are pinned in the transaction that changes the counter: slot 1 has the first, and so on.
pub const PINNED_COUNTERS: std::ops::Range<u32> = 200..204;

/// Counters whose locks are taken by transactions in which something goes wrong: nobody else's wait depends on them.
pub const FAULT_COUNTERS: std::ops::Range<u32> = 300..308;

/// Sequences of passes, by number.
pub const SEQUENCES: u32 = 3;

/// The sequence that transactions draw from in which something goes wrong.
pub const FAULT_SEQUENCE: u32 = SEQUENCES;

/// The row that an operation writes before something goes wrong.
pub const STEP_BEFORE: u32 = 1;

/// The row that it writes after that, without asking for anything.
pub const STEP_AFTER: u32 = 2;

/// The row that it writes when its closure has panicked or its future was dropped, outside of a transaction.
pub const STEP_OUTSIDE: u32 = 3;

/// The row that it wants to write while another session has it.
pub const STEP_WANTED: u32 = 4;

/// The row of an operation that holds a shared lock.
pub const STEP_READ: u32 = 5;

/// How long the lock of a closure that has panicked, or of a future that was dropped, is waited for, in milliseconds: it is
/// free.
pub const FREE_WITHIN_MS: u64 = 4000;

/// What all of them are called, in the database too.
pub const SEQUENCES_NAME: &str = "pass";

/// A semaphore and how many may hold a slot of it, whatever a sabotaged worker believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphore {
    /// Its name, in the database too.
    pub name: &'static str,
    /// How many may hold it at the same time.
    pub permits: u32,
}

/// Slots that are leased for writes at fenced resources: resource `base + number` for the slot `number`.
pub const LEASED: [Semaphore; 4] = [
    Semaphore {
        name: "leader",
        permits: 1,
    },
    Semaphore {
        name: "collate",
        permits: 3,
    },
    HELD_BY_TRANSACTIONS,
    LIMITED,
];

/// The longest lease that is asked for, in milliseconds. The nemesis pauses workers for longer.
pub const LONGEST_LEASE_MS: u64 = 2000;

/// Slots that are pinned in the transactions that write: see [`PINNED_COUNTERS`].
pub const PINNED: Semaphore = Semaphore {
    name: "pinned",
    permits: 4,
};

/// How long a slot that is pinned, is to be revoked or handed over is waited for, in milliseconds.
pub const SLOT_WAIT_MS: u64 = 1000;

/// How long a lease is that is to be handed over, and the longest time between two requests of the standby, in
/// milliseconds: far longer than a hand-over takes.
pub const HANDED_OVER_MS: u64 = 5000;

/// Slots that are held by transactions, and leased.
pub const HELD_BY_TRANSACTIONS: Semaphore = Semaphore {
    name: "gate",
    permits: 2,
};

/// Slots whose number of permits is in the database: at first, and at most, this.
pub const LIMITED: Semaphore = Semaphore {
    name: "limited",
    permits: 4,
};

/// The slot of the job on a timer.
pub const TIMER: Semaphore = Semaphore {
    name: "timer",
    permits: 1,
};

/// The period of the job on a timer, in milliseconds.
pub const TICK_PERIOD_MS: u64 = 500;

/// Its offset, in milliseconds.
pub const TICK_OFFSET_MS: u64 = 70;

/// How long a tick is waited for, in milliseconds: several periods, because others run ticks too.
pub const TICK_WAIT_MS: u64 = 1500;

/// All of them.
pub fn semaphores() -> impl Iterator<Item = Semaphore> {
    LEASED.into_iter().chain([PINNED, TIMER])
}

/// The resource that the holder of a slot writes to.
pub fn resource(semaphore: &str, number: u32) -> u32 {
    let index = LEASED.iter().position(|leased| leased.name == semaphore);
    let index = u32::try_from(index.unwrap_or(LEASED.len())).unwrap_or_default();
    index * 10 + number
}

/// All resources, with slots for one holder more than there may be.
pub fn resources() -> impl Iterator<Item = u32> {
    LEASED.into_iter().chain([TIMER]).flat_map(|semaphore| {
        (1..=semaphore.permits + 1).map(move |number| resource(semaphore.name, number))
    })
}
