//! Renews and releases many slots.

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::AstPass;
use diesel::sql_types::{Array, BigInt, Binary, Integer, Text};

use super::{push_released, push_released_unused};
use crate::engine::clock::Clock;
use crate::engine::raw_sql::{push, statement};
use crate::semaphore::renewal::RenewalRequest;

/// The requested leases, as arrays.
pub(in crate::engine) struct Asked<'a> {
    names: Vec<&'a str>,
    numbers: Vec<i32>,
    tokens: Vec<&'a [u8]>,
    leases: Vec<i64>,
}

impl<'a> Asked<'a> {
    pub(in crate::engine) fn new(leases: &'a [RenewalRequest]) -> Self {
        Self {
            names: leases
                .iter()
                .map(|lease| lease.semaphore.as_str())
                .collect(),
            numbers: leases.iter().map(|lease| lease.number).collect(),
            tokens: leases.iter().map(|lease| lease.token.as_slice()).collect(),
            leases: leases.iter().map(|lease| lease.lease_us).collect(),
        }
    }
}

/// Finds the row of each requested slot, as the newest entry in the index, if its token still matches (`mine`), and
/// locks those that no other session has locked, in the order of their keys (`locked`).
fn push_locked<'b>(out: &mut AstPass<'_, 'b, Pg>, asked: &'b Asked<'_>) -> QueryResult<()> {
    push!(out;
        "WITH mine AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, asked.lease_us, slot.expires_us, \
         slot.token FROM unnest(", Array<Text> = &asked.names;
        ", ", Array<Integer> = &asked.numbers;
        ", ", Array<Binary> = &asked.tokens;
        ", ", Array<BigInt> = &asked.leases;
        ") AS asked (name, number, token, lease_us) \
         JOIN LATERAL (SELECT name, number, fence, expires_us, token FROM diesel_locks_slots \
         WHERE diesel_locks_slots.name = asked.name COLLATE \"C\" \
         AND diesel_locks_slots.number BETWEEN asked.number AND asked.number \
         ORDER BY diesel_locks_slots.number DESC, diesel_locks_slots.fence DESC LIMIT 1) AS slot \
         ON slot.token = asked.token), \
         locked AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, slot.token, mine.lease_us \
         FROM diesel_locks_slots AS slot JOIN mine ON slot.name = mine.name AND slot.number = mine.number \
         AND slot.fence = mine.fence AND slot.token = mine.token \
         ORDER BY slot.name, slot.number FOR NO KEY UPDATE OF slot SKIP LOCKED), ";
    );
    Ok(())
}

/// The condition that joins an updated slot with its row in `locked`.
const OF_LOCKED: &str = " FROM locked WHERE diesel_locks_slots.name = locked.name \
     AND diesel_locks_slots.number = locked.number AND diesel_locks_slots.fence = locked.fence";

/// The end of a release: the tokens of the slots that another session has locked.
const NOT_RELEASED: &str = ") SELECT token FROM mine WHERE token NOT IN (SELECT token FROM locked)";

statement! {
    Pg;
    /// Renews leases that have not expired, except those whose row another session has locked. Raw, because the DSL has
    /// neither arrays as tables nor locks in a subquery.
    RenewBatch<'a> { asked: Asked<'a> } -> (Binary, BigInt),
    |self, out| {
        push_locked(&mut out, &self.asked)?;
        push!(out;
            "renewed AS (UPDATE diesel_locks_slots SET expires_us = greatest(hold_until_us, "; {Pg::NOW};
            " + locked.lease_us)"; {OF_LOCKED}; " AND expires_us > "; {Pg::NOW};
            " RETURNING diesel_locks_slots.token, expires_us - "; {Pg::NOW};
            " AS remaining_us) SELECT token, remaining_us FROM renewed UNION ALL \
             SELECT token, expires_us - "; {Pg::NOW};
            " FROM mine WHERE token NOT IN (SELECT token FROM renewed)";
        );
    }
}

statement! {
    Pg;
    /// Releases slots, except those whose row another session has locked; returns the tokens of these. Raw for the
    /// reasons of [`RenewBatch`].
    ReleaseBatch<'a> { asked: Asked<'a> } -> Binary,
    |self, out| {
        push_locked(&mut out, &self.asked)?;
        out.push_sql("freed AS (UPDATE diesel_locks_slots");
        push_released(&mut out);
        push!(out; {OF_LOCKED}; {NOT_RELEASED});
    }
}

statement! {
    Pg;
    /// [`ReleaseBatch`] of slots that were not used.
    ReleaseUnusedBatch<'a> { asked: Asked<'a> } -> Binary,
    |self, out| {
        push_locked(&mut out, &self.asked)?;
        out.push_sql("freed AS (UPDATE diesel_locks_slots");
        push_released_unused(&mut out);
        push!(out; {OF_LOCKED}; {NOT_RELEASED});
    }
}
