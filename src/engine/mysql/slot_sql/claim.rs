//! Leases or locks a free slot.

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use super::locked_tables::{JOIN_UNLESS_TABLE_LOCKED, UNLESS_TABLE_LOCKED};
use crate::engine::clock::Clock;
use crate::engine::mysql::sql::limits::LIMIT_HINT;
use crate::engine::mysql::sql::safe_updates::ANY_JOIN_HINT;
use crate::engine::raw_sql::{push, statement};
use crate::semaphore::backend::{Grant, LeaseRequest};

/// A lease on a slot that has not changed since the search.
pub(in crate::engine) struct NewLease<'a> {
    pub(in crate::engine) request: &'a LeaseRequest<'a>,
    pub(in crate::engine) holder: Option<&'a [u8]>,
    pub(in crate::engine) grant: Grant,
    /// The fence that the search has read.
    pub(in crate::engine) last: i64,
}

fn push_lease<'b>(out: &mut AstPass<'_, 'b, Mysql>, lease: &'b NewLease<'_>) -> QueryResult<()> {
    push!(out;
        " SET token = ", Binary = lease.request.token.as_slice();
        ", holder = ", Nullable<Binary> = &lease.holder;
        ", fence = ", BigInt = &lease.grant.fence;
        ", acquired_us = "; {Mysql::NOW};
        ", expires_us = "; {Mysql::NOW}; " + ", BigInt = &lease.request.lease_us;
        ", hold_until_us = CASE WHEN ", BigInt = &lease.request.min_hold_us; " > 0 THEN "; {Mysql::NOW};
        " ELSE 0 END + ", BigInt = &lease.request.min_hold_us;
    );
    Ok(())
}

fn push_unchanged_filter<'b>(
    out: &mut AstPass<'_, 'b, Mysql>,
    lease: &'b NewLease<'_>,
) -> QueryResult<()> {
    push!(out;
        " WHERE name = ", Binary = lease.request.semaphore.name().as_bytes();
        " AND number = ", Integer = &lease.grant.number;
        " AND fence = ", BigInt = &lease.last;
        " AND expires_us <= "; {Mysql::NOW};
    );
    Ok(())
}

statement! {
    Mysql;
    /// Leases the slot, unless another session has it locked. Raw, because the DSL has no locks in a subquery. The
    /// derived table comes first (`STRAIGHT_JOIN`), and only it contains the key: the update would wait for a row that
    /// it found by itself.
    Claim<'a> { lease: NewLease<'a> } -> Integer,
    |self, out| {
        push!(out; {JOIN_UNLESS_TABLE_LOCKED}; "UPDATE "; {ANY_JOIN_HINT}; "(SELECT name, number FROM diesel_locks_slots");
        push_unchanged_filter(&mut out, &self.lease)?;
        push!(out;
            " LIMIT 1 FOR UPDATE SKIP LOCKED) AS free STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
             ON slot.name = free.name AND slot.number = free.number";
        );
        push_lease(&mut out, &self.lease)?;
    }
}

statement! {
    Mysql;
    /// [`Claim`] on MariaDB, where a derived table takes ten times as long as the update. It fails when another session
    /// has the row locked. Not for an open transaction, which some servers then roll back
    /// (`innodb_rollback_on_timeout`).
    ClaimNowait<'a> { lease: NewLease<'a> } -> Integer,
    |self, out| {
        push!(out;
            "SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0 FOR UPDATE diesel_locks_slots";
        );
        push_lease(&mut out, &self.lease)?;
        push_unchanged_filter(&mut out, &self.lease)?;
    }
}

/// The number and fence of a slot, and 1 if it has the token of an expired lease.
pub(in crate::engine::mysql) type LockedRow = (i32, i64, i64);

// Rows are locked by the primary key only. Locking entries of a secondary index, which change with every grant and
// release, waits in spite of SKIP LOCKED, and deadlocks.

/// `condition` ends with the comparison with `number`.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the statement binds the reference"
)]
fn push_lock_free<'b>(
    out: &mut AstPass<'_, 'b, Mysql>,
    name: &'b [u8],
    condition: &'static str,
    number: &'b i32,
) -> QueryResult<()> {
    push!(out;
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        "number, fence, token IS NOT NULL FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = name;
        {condition}, Integer = number;
        " AND expires_us <= "; {Mysql::NOW};
    );
    Ok(())
}

statement! {
    Mysql;
    /// Locks the slot if it is free and not locked. Raw, as is the next one, because the DSL has no index hints and
    /// Diesel would not cache the statement.
    LockFree<'a> { name: &'a [u8], number: i32 } -> (Integer, BigInt, BigInt),
    |self, out| {
        push_lock_free(&mut out, self.name, " AND number = ", &self.number)?;
        out.push_sql(" FOR UPDATE SKIP LOCKED");
    }
}

statement! {
    Mysql;
    /// Locks the first slot that is free and not locked.
    FirstUnlocked<'a> { name: &'a [u8], permits: i32 } -> (Integer, BigInt, BigInt),
    |self, out| {
        push_lock_free(&mut out, self.name, " AND number <= ", &self.permits)?;
        out.push_sql(" ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED");
    }
}
