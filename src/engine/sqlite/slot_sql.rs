//! SQLite's statements for slots. Raw SQL where the DSL lacks PRAGMA, derived tables or JSON tables.

use diesel::QueryResult;
use diesel::dsl::{auto_type, update};
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;

use crate::engine::clock::{Clock, DbHoldUntil, DbNow, DbNowPlus, LeaseRemaining};
use crate::engine::slot_queries::{Key, Release, ReleaseUnused};
use crate::engine::slots::{Grant, LeaseRequest};
use crate::engine::tables::{Named, diesel_locks_slots as slots};
use crate::link::raw_sql::{push, statement};

impl Clock for Sqlite {
    // Not by `unixepoch('subsec')`, which is NULL before SQLite 3.42.
    const NOW: &'static str =
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000";
    const GREATEST: &'static str = "MAX";
}

statement! {
    Sqlite;
    /// Returns the path of the database file, or an empty text for a database in memory.
    Database {} -> Text,
    |self| { "SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'" }
}

statement! {
    Sqlite;
    Pin<'a> { key: Key<'a> } -> Integer,
    |self| { "SELECT number FROM diesel_locks_slots"; [&self.key] }
}

#[auto_type]
pub(crate) fn first_slot<'a>(name: Named<'a>) -> _ {
    let left: LeaseRemaining = LeaseRemaining {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.eq(1_i32))
        .select((slots::fence, slots::acquired_us, slots::hold_until_us, left))
}

#[auto_type]
pub(crate) fn free<'a>(name: Named<'a>) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.le(now))
        .order(slots::number)
        .select(slots::number)
}

/// The last slot's number, and the number and fence of a free slot.
pub(crate) type FoundRow = (Option<i32>, Option<i32>, Option<i64>);

statement! {
    Sqlite;
    /// Finds a free slot, unless there are more slots than permits.
    FindFree<'a> { name: &'a str, permits: i32 } ->
        (Nullable<Integer>, Nullable<Integer>, Nullable<BigInt>),
    |self| {
        "SELECT seen.slots, free.number, free.fence FROM (SELECT (SELECT MAX(number) FROM diesel_locks_slots \
         WHERE name = ", Text = self.name;
        ") AS slots) AS seen LEFT JOIN (SELECT number, fence FROM diesel_locks_slots WHERE name = ",
        Text = self.name;
        " AND expires_us <= "; {Sqlite::NOW};
        " ORDER BY expires_us LIMIT 1) AS free ON seen.slots <= ", Integer = &self.permits;
    }
}

#[auto_type]
pub(crate) fn first_free_among<'a>(name: Named<'a>, open: &'a [i32]) -> _ {
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
#[auto_type]
pub(crate) fn grant<'a>(request: &'a LeaseRequest<'a>, grant: Grant) -> _ {
    let name: Named<'a> = Named(request.semaphore.name());
    let number: i32 = grant.number;
    let token: Option<&'a [u8]> = Some(request.token.as_slice());
    let holder: Option<Named<'a>> = request.holder.map(Named);
    let fence: i64 = grant.fence;
    let now: DbNow = DbNow {};
    let expires: DbNowPlus = DbNowPlus {
        micros: request.lease_us,
    };
    let hold_until: DbHoldUntil = DbHoldUntil {
        micros: request.min_hold_us,
    };
    update(slots::table.find((name, number))).set((
        slots::token.eq(token),
        slots::holder.eq(holder),
        slots::fence.eq(fence),
        slots::acquired_us.eq(now),
        slots::expires_us.eq(expires),
        slots::hold_until_us.eq(hold_until),
    ))
}

#[auto_type]
pub(crate) fn last_fence_above<'a>(name: Named<'a>, above: i32) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.gt(above))
        .order(slots::fence.desc())
        .limit(1_i64)
        .select(slots::fence)
}

#[auto_type]
pub(crate) fn clear_token<'a>(name: Named<'a>, number: i32) -> _ {
    let no_token: Option<&'static [u8]> = None;
    update(slots::table.find((name, number)))
        .filter(slots::token.is_not_null())
        .set(slots::token.eq(no_token))
}

/// The requested leases, as JSON: a table, and the condition that joins a slot with its lease.
pub(crate) struct Asked<'a>(pub(crate) &'a str);

impl QueryFragment<Sqlite> for Asked<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        push!(out;
            " FROM (SELECT value ->> 'name' AS name, value ->> 'number' AS number, \
             upper(value ->> 'token') AS token, value ->> 'lease_us' AS lease_us FROM json_each(", Text = self.0;
            ")) AS asked WHERE diesel_locks_slots.name = asked.name AND diesel_locks_slots.number = asked.number \
             AND hex(diesel_locks_slots.token) = asked.token";
        );
        Ok(())
    }
}

statement! {
    Sqlite;
    RenewBatch<'a> { asked: Asked<'a> } -> (Nullable<Binary>, BigInt),
    |self| {
        "UPDATE diesel_locks_slots SET expires_us = MAX(hold_until_us, "; {Sqlite::NOW}; " + asked.lease_us)";
        [&self.asked]; " AND expires_us > "; {Sqlite::NOW};
        " RETURNING diesel_locks_slots.token, expires_us - "; {Sqlite::NOW}
    }
}

statement! {
    Sqlite;
    ReleaseBatch<'a> { asked: Asked<'a> } -> BigInt,
    |self| { "UPDATE diesel_locks_slots"; [&Release]; [&self.asked] }
}

statement! {
    Sqlite;
    ReleaseUnusedBatch<'a> { asked: Asked<'a> } -> BigInt,
    |self| { "UPDATE diesel_locks_slots"; [&ReleaseUnused]; [&self.asked] }
}
