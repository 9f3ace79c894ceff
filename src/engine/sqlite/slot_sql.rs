//! SQLite's statements for slots.

use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;

use crate::engine::clock::{Clock, DbHoldUntil, DbNowPlus};
use crate::engine::raw_sql::{push, statement};
use crate::engine::slot_queries::slot_queries;
use crate::semaphore::backend::{Grant, LeaseRequest};

slot_queries!(sqlite, Sqlite, str, Text);

impl Clock for Sqlite {
    // Not by `unixepoch('subsec')`, which is NULL before SQLite 3.42.
    const NOW: &'static str =
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000";
    const GREATEST: &'static str = "MAX";
}

statement! {
    Sqlite;
    /// The path of the database's file; empty for a database in memory. Raw, because the DSL has no PRAGMA.
    Database {} -> Text,
    |self, out| {
        out.push_sql("SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'");
    }
}

statement! {
    Sqlite;
    /// Reads the slot if its token matches.
    Pin<'a> { key: Key<'a> } -> Integer,
    |self, out| {
        out.push_sql("SELECT number FROM diesel_locks_slots");
        push_key_filter(&mut out, &self.key)?;
    }
}

/// The times of a semaphore's first slot, whether it is held or not.
#[diesel::dsl::auto_type]
pub(super) fn first_slot<'a>(name: &'a str) -> _ {
    let left: LeaseRemaining = LeaseRemaining {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.eq(1_i32))
        .select((slots::fence, slots::acquired_us, slots::hold_until_us, left))
}

#[diesel::dsl::auto_type]
pub(super) fn free<'a>(name: &'a str) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.le(now))
        .order(slots::number)
        .select(slots::number)
}

/// The last slot's number, and the number and fence of a free slot.
pub(super) type FoundRow = (Option<i32>, Option<i32>, Option<i64>);

statement! {
    Sqlite;
    /// Finds a free slot, unless there are more slots than permits. Raw, because the DSL has no derived tables.
    FindFree<'a> { name: &'a str, permits: i32 } ->
        (Nullable<Integer>, Nullable<Integer>, Nullable<BigInt>),
    |self, out| {
        push!(out;
            "SELECT seen.slots, free.number, free.fence FROM (SELECT (SELECT MAX(number) FROM diesel_locks_slots \
             WHERE name = ", Text = self.name;
            ") AS slots) AS seen LEFT JOIN (SELECT number, fence FROM diesel_locks_slots WHERE name = ",
                Text = self.name;
            " AND expires_us <= "; {Sqlite::NOW};
            " ORDER BY expires_us LIMIT 1) AS free ON seen.slots <= ", Integer = &self.permits;
        );
    }
}

#[diesel::dsl::auto_type]
pub(super) fn first_free_among<'a>(name: &'a str, open: &'a [i32]) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.eq_any(open))
        .filter(slots::expires_us.le(now))
        .order(slots::number)
        .limit(1_i64)
        .select((slots::number, slots::fence))
}

/// Without conditions: the caller has found the row free, and holds the write lock.
pub(super) fn grant<'a>(request: &'a LeaseRequest<'a>, grant: &Grant) -> impl ExecutableQuery + 'a {
    diesel::update(slots::table.find((request.semaphore.name(), grant.number))).set((
        slots::token.eq(Some(request.token.as_slice())),
        slots::holder.eq(request.holder),
        slots::fence.eq(grant.fence),
        slots::acquired_us.eq(DbNow {}),
        slots::expires_us.eq(DbNowPlus {
            micros: request.lease_us,
        }),
        slots::hold_until_us.eq(DbHoldUntil {
            micros: request.min_hold_us,
        }),
    ))
}

#[diesel::dsl::auto_type]
pub(super) fn last_fence_above<'a>(name: &'a str, above: i32) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.gt(above))
        .order(slots::fence.desc())
        .limit(1_i64)
        .select(slots::fence)
}

pub(super) fn clear_token(name: &str, number: i32) -> impl ExecutableQuery {
    diesel::update(slots::table.find((name, number)))
        .filter(slots::token.is_not_null())
        .set(slots::token.eq(None::<&[u8]>))
}

pub(super) fn insert(name: &str, number: i32, fence: i64) -> impl ExecutableQuery {
    diesel::insert_into(slots::table).values(new_slot(name, number, fence))
}

/// Inserts the floor unless it exists.
pub(super) fn insert_fence_floor(fence: i64) -> impl ExecutableQuery {
    diesel::insert_or_ignore_into(diesel_locks_fences::table).values((
        diesel_locks_fences::id.eq(FENCE_ROW_ID),
        diesel_locks_fences::fence.eq(fence),
    ))
}

pub(super) fn register(name: &str, permits: i32) -> impl ExecutableQuery {
    diesel::replace_into(diesel_locks_semaphores::table).values((
        diesel_locks_semaphores::name.eq(name),
        diesel_locks_semaphores::permits.eq(permits),
    ))
}

/// Pushes the requested leases as a table, and the condition that joins a slot with its lease.
fn push_asked<'b>(out: &mut AstPass<'_, 'b, Sqlite>, asked: &'b str) -> QueryResult<()> {
    push!(out;
        " FROM (SELECT value ->> 'name' AS name, value ->> 'number' AS number, \
         upper(value ->> 'token') AS token, value ->> 'lease_us' AS lease_us FROM json_each(", Text = asked;
        ")) AS asked WHERE diesel_locks_slots.name = asked.name AND diesel_locks_slots.number = asked.number \
         AND hex(diesel_locks_slots.token) = asked.token";
    );
    Ok(())
}

statement! {
    Sqlite;
    /// Renews leases that have not expired. Raw, because the DSL has no JSON tables.
    RenewBatch<'a> { asked: &'a str } -> (Nullable<Binary>, BigInt),
    |self, out| {
        push!(out;
            "UPDATE diesel_locks_slots SET expires_us = MAX(hold_until_us, "; {Sqlite::NOW}; " + asked.lease_us)";
        );
        push_asked(&mut out, self.asked)?;
        push!(out; " AND expires_us > "; {Sqlite::NOW}; " RETURNING diesel_locks_slots.token, expires_us - "; {Sqlite::NOW});
    }
}

statement! {
    Sqlite;
    /// Releases slots. Raw for the reason of [`RenewBatch`].
    ReleaseBatch<'a> { asked: &'a str } -> BigInt,
    |self, out| {
        out.push_sql("UPDATE diesel_locks_slots");
        push_released(&mut out);
        push_asked(&mut out, self.asked)?;
    }
}

statement! {
    Sqlite;
    /// [`ReleaseBatch`] of slots that were not used.
    ReleaseUnusedBatch<'a> { asked: &'a str } -> BigInt,
    |self, out| {
        out.push_sql("UPDATE diesel_locks_slots");
        push_released_unused(&mut out);
        push_asked(&mut out, self.asked)?;
    }
}
