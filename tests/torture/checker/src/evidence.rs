//! What the database says at the end.

mod engines;
mod sqlite_writer;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

pub use engines::ReadEvidence;

/// A row of `torture_counters`.
#[derive(Clone, Debug, QueryableByName)]
pub struct Counter {
    /// Which counter.
    #[diesel(sql_type = Integer)]
    pub id: i32,
    /// How often it was changed.
    #[diesel(sql_type = BigInt)]
    pub n: i64,
    /// The account's money.
    #[diesel(sql_type = BigInt)]
    pub balance: i64,
}

/// A row of `torture_ledger`: the operation set the counter to this.
#[derive(Clone, Debug, QueryableByName)]
pub struct LedgerRow {
    /// Which operation.
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    /// Which counter.
    #[diesel(sql_type = Integer)]
    pub counter: i32,
    /// What it set it to.
    #[diesel(sql_type = BigInt)]
    pub n: i64,
}

/// A row of `torture_resources`.
#[derive(Clone, Debug, QueryableByName)]
pub struct Resource {
    /// Which resource.
    #[diesel(sql_type = Integer)]
    pub id: i32,
    /// Of the write that was accepted last.
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    /// How many writes were accepted.
    #[diesel(sql_type = BigInt)]
    pub version: i64,
}

/// A row of `torture_writes`: a write that a resource accepted.
#[derive(Clone, Debug, QueryableByName)]
pub struct Write {
    /// Which operation.
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    /// At which resource.
    #[diesel(sql_type = Integer)]
    pub resource: i32,
    /// The how many-th.
    #[diesel(sql_type = BigInt)]
    pub version: i64,
    /// With which fence.
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
}

/// A row of `torture_passes`.
#[derive(Clone, Debug, QueryableByName)]
pub struct Pass {
    /// Which operation.
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    /// Of which sequence.
    #[diesel(sql_type = Integer)]
    pub sequence: i32,
    /// The number drawn.
    #[diesel(sql_type = BigInt)]
    pub number: i64,
}

/// A row of `torture_slot_uses`: a committed transaction that held a slot.
#[derive(Clone, Debug, QueryableByName)]
pub struct SlotUse {
    /// Which operation.
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    /// Of which semaphore.
    #[diesel(sql_type = Text)]
    pub semaphore: String,
}

/// A row of `torture_steps`: a row of an operation in which something goes wrong.
#[derive(Clone, Debug, QueryableByName)]
pub struct Step {
    /// Which operation.
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    /// Which row of its: see `workload_spec`.
    #[diesel(sql_type = Integer)]
    pub step: i32,
}

/// A row of `diesel_locks_sequences`.
#[derive(Clone, Debug, QueryableByName)]
pub struct Sequence {
    /// The kind of its objects.
    #[diesel(sql_type = Text)]
    pub name: String,
    /// The object.
    #[diesel(sql_type = Text)]
    pub scope: String,
    /// The number drawn last.
    #[diesel(sql_type = BigInt)]
    pub last: i64,
}

/// A row of `diesel_locks_slots`.
#[derive(Clone, Debug, QueryableByName)]
pub struct Slot {
    /// Of which semaphore.
    #[diesel(sql_type = Text)]
    pub name: String,
    /// Its number.
    #[diesel(sql_type = Integer)]
    pub number: i32,
    /// What the last holder called itself.
    #[diesel(sql_type = Nullable<Text>)]
    pub holder: Option<String>,
    /// When the lease ends: microseconds since 1970.
    #[diesel(sql_type = BigInt)]
    pub expires_us: i64,
}

/// What the database says at the end, when no worker is left.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Counters.
    pub counters: Vec<Counter>,
    /// Which operation changed which counter.
    pub ledger: Vec<LedgerRow>,
    /// Resources that look at fences.
    pub resources: Vec<Resource>,
    /// Writes that they accepted.
    pub writes: Vec<Write>,
    /// Passes.
    pub passes: Vec<Pass>,
    /// Transactions that held slots.
    pub slot_uses: Vec<SlotUse>,
    /// Rows of operations in which something goes wrong.
    pub steps: Vec<Step>,
    /// Sequences.
    pub sequences: Vec<Sequence>,
    /// Ids of lock rows that are not kept.
    pub transient_locks: Vec<String>,
    /// Slots.
    pub slots: Vec<Slot>,
    /// Name and number of slots whose rows a session has locked.
    pub locked_slots: Vec<(String, i32)>,
    /// Whether a connection has the write lock (SQLite).
    pub somebody_writes: bool,
    /// Whether there is a server, to which connections can be lost.
    pub has_server: bool,
    /// The database's clock: microseconds since 1970.
    pub now_us: i64,
}
