//! A snapshot. Times are microseconds since 1970 by the database's clock; numbers that may exceed 2^53 are text.

use serde::Serialize;

/// All that the page shows, besides the time and an error.
#[derive(Serialize)]
pub(super) struct Full<'a> {
    /// The database and its version.
    pub(super) engine: &'a str,
    /// The instance that made the snapshot.
    pub(super) instance: &'a str,
    /// Whether a release needs the operator's token.
    pub(super) guarded: bool,
    pub(super) semaphores: &'a [Semaphore],
    pub(super) rates: Rates,
    /// Holders of slots in the last 60 s, as seen by this instance.
    pub(super) handovers: Vec<Handover>,
    /// Whether there were more than are kept: the oldest of them are missing.
    pub(super) handovers_cut: bool,
    pub(super) object_locks: &'a ObjectLocks,
    pub(super) sequences: &'a [Sequence],
}

#[derive(Serialize)]
pub(super) struct Semaphore {
    pub(super) name: String,
    pub(super) permits: u32,
    pub(super) slots: Vec<Slot>,
}

#[derive(Serialize)]
pub(super) struct Slot {
    pub(super) number: u32,
    #[serde(flatten)]
    pub(super) state: SlotState,
}

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum SlotState {
    Free,
    Held(Holding),
    /// Its holder has released it before its minimum hold time was over.
    Released(Released),
}

#[derive(Serialize)]
pub(super) struct Released {
    /// The last holder, which has released it.
    pub(super) holder: String,
    /// When it is free.
    pub(super) free_us: i64,
}

#[derive(Serialize)]
pub(super) struct Holding {
    pub(super) holder: String,
    pub(super) acquired_us: i64,
    pub(super) expires_us: i64,
    pub(super) fence: String,
}

/// Of the last seconds.
#[derive(Serialize)]
pub(super) struct Rates {
    pub(super) waiting: usize,
    pub(super) attempts_per_s: f64,
    pub(super) granted_per_s: f64,
    pub(super) refused_per_s: f64,
    pub(super) timed_out_per_s: f64,
    pub(super) longest_wait_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Handover {
    pub(super) semaphore: String,
    pub(super) slot: u32,
    pub(super) holder: String,
    pub(super) from_us: i64,
    /// `None` while the holder holds it.
    pub(super) to_us: Option<i64>,
}

#[derive(Default, Serialize)]
pub(super) struct ObjectLocks {
    /// Whether the engine shows locks.
    pub(super) shown: bool,
    /// What the engine shows.
    pub(super) note: String,
    pub(super) locks: Vec<ObjectLock>,
}

#[derive(Serialize)]
pub(super) struct ObjectLock {
    /// The locked object; `None` if the engine does not show it.
    pub(super) id: Option<String>,
    pub(super) label: String,
    pub(super) session: String,
    pub(super) since_us: Option<i64>,
    pub(super) waiters: Vec<Waiter>,
}

#[derive(Serialize)]
pub(super) struct Waiter {
    pub(super) session: String,
    pub(super) since_us: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct Sequence {
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) last_number: String,
}
