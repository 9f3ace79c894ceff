//! Renews and releases many slots.

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::sql_types::{BigInt, Integer, Text};

use super::{COMMITTED_AT_ONCE, push_released, push_released_unused};
use crate::engine::clock::Clock;
use crate::engine::mysql::sql::limits::{ANY_SIZE, ANY_SIZE_HINT, EVERY_ROW};
use crate::engine::mysql::sql::safe_updates::{ANY_JOIN, ANY_JOIN_HINT};
use crate::engine::raw_sql::{push, statement};

/// The requested leases as a table, joined with the slots whose tokens match.
const ASKED: &str = ", '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(2040) PATH '$.name', number INTEGER PATH '$.number', \
     token VARCHAR(32) PATH '$.token', lease_us BIGINT PATH '$.lease_us')) AS asked \
     STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = UNHEX(asked.name) \
     AND slot.number = asked.number AND slot.token = UNHEX(asked.token)";

/// What to renew or release.
#[derive(Clone, Copy)]
pub(in crate::engine::mysql) struct Leases<'a> {
    /// As JSON.
    pub(in crate::engine) asked: &'a str,
    /// 1 in a transaction, otherwise 0: then nothing is changed that would not be committed at once.
    pub(in crate::engine) in_transaction: i32,
}

/// The beginning of an update of the requested leases, except those whose row another session has locked.
fn push_update<'b>(out: &mut AstPass<'_, 'b, Mysql>, leases: &'b Leases<'_>) -> QueryResult<()> {
    push!(out;
        {ANY_JOIN}; "UPDATE "; {ANY_JOIN_HINT};
        "(SELECT slot.name, slot.number, asked.lease_us FROM JSON_TABLE(", Text = leases.asked; {ASKED};
        " WHERE "; {COMMITTED_AT_ONCE}; " OR ", Integer = &leases.in_transaction;
        " LIMIT 1000000 FOR UPDATE /*!80000 OF slot */ SKIP LOCKED) AS mine \
         STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
         ON slot.name = mine.name AND slot.number = mine.number";
    );
    Ok(())
}

statement! {
    Mysql;
    /// Renews leases that have not expired, except those whose row another session has locked. Raw, because the DSL has
    /// neither JSON tables nor locks in a subquery.
    RenewBatch<'a> { leases: Leases<'a> } -> Integer,
    |self, out| {
        push_update(&mut out, &self.leases)?;
        push!(out; " SET slot.expires_us = GREATEST(slot.hold_until_us, "; {Mysql::NOW};
            " + mine.lease_us) WHERE slot.expires_us > "; {Mysql::NOW});
    }
}

statement! {
    Mysql;
    /// Releases slots, except those whose row another session has locked. Raw for the reasons of [`RenewBatch`].
    ReleaseBatch<'a> { leases: Leases<'a> } -> Integer,
    |self, out| {
        push_update(&mut out, &self.leases)?;
        push_released(&mut out);
    }
}

statement! {
    Mysql;
    /// [`ReleaseBatch`] of slots that were not used.
    ReleaseUnusedBatch<'a> { leases: Leases<'a> } -> Integer,
    |self, out| {
        push_update(&mut out, &self.leases)?;
        push_released_unused(&mut out);
    }
}

statement! {
    Mysql;
    /// Reads the remaining time of each lease whose token still matches. Identifies it by its position in the request,
    /// from 1, because a broken client library loses texts but not numbers. The third number is 0 if statements are not
    /// committed at once.
    OwnedLeases<'a> { asked: &'a str } -> (BigInt, BigInt, BigInt),
    |self, out| {
        push!(out;
            {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT}; "asked.place, slot.expires_us - "; {Mysql::NOW}; ", "; {COMMITTED_AT_ONCE};
            " FROM JSON_TABLE(", Text = self.asked; {ASKED}; {EVERY_ROW};
        );
    }
}
