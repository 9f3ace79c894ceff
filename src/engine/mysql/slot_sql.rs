//! The statements for slots on MySQL and MariaDB.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use super::sql::limits::{EVERY_ROW, LIMIT_HINT, LONG_LIMIT_HINT};
use super::sql::safe_updates::{ANY_JOIN, ANY_JOIN_HINT};
use super::sql::session_state::{IN_TRANSACTION, WRITER_UNKNOWN};
use crate::engine::clock::Clock;
use crate::engine::raw_sql::{push, statement};
use crate::engine::slot_queries::{locking_slot_queries, slot_queries};

pub(super) mod batch;
pub(super) mod claim;
mod locked_tables;
pub(super) mod search;

use locked_tables::{AS_AN_UPDATE, UNLESS_TABLE_LOCKED};

slot_queries!(mysql, Mysql, [u8], Binary);
locking_slot_queries!([u8]);

impl Clock for Mysql {
    // Not UNIX_TIMESTAMP, which depends on the session's time zone and jumps with daylight saving time.
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const GREATEST: &'static str = "GREATEST";
    const COMMITTED_AT_ONCE: Option<&'static str> = Some(COMMITTED_AT_ONCE);
    const COUNTS_CHANGED_ROWS: bool = true;
    const BY_PRIMARY_KEY: &'static str = " FORCE INDEX (PRIMARY)";
}

/// See [`Clock::COMMITTED_AT_ONCE`].
///
/// MySQL does not report a transaction that the application has begun by its own SQL.
const COMMITTED_AT_ONCE: &str =
    "(/*!80000 @@autocommit *//*M!100100 @@autocommit AND NOT @@in_transaction */)";

/// A digest that identifies the server and the database.
const DATABASE: &str = "SHA2(CONCAT_WS('/', /*!80000 @@server_uuid, */ @@hostname, @@port, @@socket, @@datadir, \
     @@pid_file, DATABASE()), 256)";

statement! {
    Mysql;
    /// Reads the first 120 bits of [`DATABASE`] as two numbers. Raw, because the DSL has none of these functions.
    Database {} -> (BigInt, BigInt),
    |self, out| {
        push!(out;
            "SELECT CAST(CONV(SUBSTR("; {DATABASE}; ", 1, 15), 16, 10) AS SIGNED), CAST(CONV(SUBSTR("; {DATABASE};
            ", 16, 15), 16, 10) AS SIGNED)";
        );
    }
}

statement! {
    Mysql;
    /// Locks free slots above a number, from the last one down.
    LockFreeAbove<'a> { name: &'a [u8], above: i32, limit: i64 } -> (Integer, BigInt),
    |self, out| {
        push!(out;
            "SELECT number, fence FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND number > ", Integer = &self.above;
            " AND expires_us <= "; {Mysql::NOW};
            " ORDER BY number DESC LIMIT ", BigInt = &self.limit; " FOR UPDATE SKIP LOCKED";
        );
    }
}

statement! {
    Mysql;
    /// Deletes the slots above a number, which this session has locked. By the whole key of each: a DELETE with a range
    /// also locks the next row, which is another semaphore's, and waits for it.
    DeleteLockedAbove<'a> { name: &'a [u8], above: i32 } -> Integer,
    |self, out| {
        push!(out;
            {ANY_JOIN}; "DELETE "; {ANY_JOIN_HINT}; "slot FROM (SELECT name, number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ",
                Binary = self.name;
            " AND number > ", Integer = &self.above;
            " LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS gone STRAIGHT_JOIN diesel_locks_slots AS slot \
             FORCE INDEX (PRIMARY) ON slot.name = gone.name AND slot.number = gone.number";
        );
    }
}

statement! {
    Mysql;
    /// The held slots. Fails unless it ends in time: another session may have the table locked. Raw, because the DSL has no
    /// prefixes and hints.
    HeldNowait<'a> { name: &'a [u8] } -> (Integer, BigInt, BigInt),
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
            "number, fence, expires_us - "; {Mysql::NOW};
            " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND expires_us > "; {Mysql::NOW};
            " ORDER BY number"; {EVERY_ROW};
        );
    }
}

statement! {
    Mysql;
    /// The times of a semaphore's first slot, whether it is held or not. Fails as [`HeldNowait`] does.
    FirstSlotNowait<'a> { name: &'a [u8] } -> (BigInt, BigInt, BigInt, BigInt),
    |self, out| {
        first_slot(&mut out, self.name, LIMIT_HINT)?;
    }
}

statement! {
    Mysql;
    /// [`FirstSlotNowait`] with a longer limit.
    FirstSlotSlowly<'a> { name: &'a [u8] } -> (BigInt, BigInt, BigInt, BigInt),
    |self, out| {
        first_slot(&mut out, self.name, LONG_LIMIT_HINT)?;
    }
}

/// Pushes [`FirstSlotNowait`] with a hint that limits its time.
fn first_slot<'b>(
    out: &mut AstPass<'_, 'b, Mysql>,
    name: &'b [u8],
    limit: &str,
) -> QueryResult<()> {
    push!(out;
        {UNLESS_TABLE_LOCKED}; "SELECT "; {limit};
        "fence, acquired_us, hold_until_us, expires_us - "; {Mysql::NOW};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = name;
        " AND number = 1";
    );
    Ok(())
}

statement! {
    Mysql;
    /// Locks the row of `diesel_locks_fences`, unless another session has locked the row, its table or the table of
    /// slots.
    LockFenceFloorIfFree {} -> BigInt,
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
            {AS_AN_UPDATE}; "fence FROM diesel_locks_fences WHERE id = 1 FOR UPDATE SKIP LOCKED";
        );
    }
}

statement! {
    Mysql;
    /// Locks the slot against all changes if its token matches; returns whether a transaction is open, and
    /// [`WRITER_UNKNOWN`]. Raw, because MariaDB has no FOR SHARE.
    Pin<'a> { key: Key<'a> } -> (Nullable<BigInt>, BigInt),
    |self, out| {
        push!(out;
            "SELECT "; {IN_TRANSACTION}; ", "; {WRITER_UNKNOWN};
            " FROM diesel_locks_slots FORCE INDEX (PRIMARY)";
        );
        push_key_filter(&mut out, &self.key)?;
        out.push_sql(" LOCK IN SHARE MODE");
    }
}

pub(super) fn lock_fence_floor_if_free() -> LockFenceFloorIfFree {
    LockFenceFloorIfFree {}
}

pub(super) fn lock_free_above(name: &[u8], above: i32, limit: i64) -> LockFreeAbove<'_> {
    LockFreeAbove { name, above, limit }
}

pub(super) fn delete_locked_above(name: &[u8], above: i32) -> DeleteLockedAbove<'_> {
    DeleteLockedAbove { name, above }
}

/// Without further conditions: this session has locked the row.
pub(super) fn clear_token(name: &[u8], number: i32) -> impl ExecutableQuery {
    diesel::update(slots::table.find((name, number))).set(slots::token.eq(None::<&[u8]>))
}

/// Inserts the floor unless it exists.
pub(super) fn insert_fence_floor(fence: i64) -> impl ExecutableQuery {
    diesel::insert_or_ignore_into(diesel_locks_fences::table).values((
        diesel_locks_fences::id.eq(FENCE_ROW_ID),
        diesel_locks_fences::fence.eq(fence),
    ))
}

pub(super) fn register(name: &[u8], permits: i32) -> impl ExecutableQuery {
    diesel::replace_into(diesel_locks_semaphores::table).values((
        diesel_locks_semaphores::name.eq(name),
        diesel_locks_semaphores::permits.eq(permits),
    ))
}
