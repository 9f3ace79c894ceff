//! Leases or locks a free slot on MySQL and MariaDB: after a search that locks nothing, an update of one row by its key, which
//! does not wait if another session has the row locked. Raw SQL here, because the DSL has neither index hints nor locks in a
//! subquery, and Diesel would not cache the statements.

use std::time::Instant;

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use crate::engine::clock::Clock;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::execute::{self, execute_cached, unless_ended, unless_locked};
use crate::engine::mysql::slot_search::{Candidates, LAST_CLAIMED, is_table_locked};
use crate::engine::mysql::sql::{
    ANY_JOIN_HINT, JOIN_UNLESS_TABLE_LOCKED, LIMIT_HINT, LONG_LIMIT_HINT, UNLESS_TABLE_LOCKED,
};
use crate::engine::slots::{AttemptContext, Grant, LeaseRequest};
use crate::error::classify::ErrorClass;
use crate::link::raw_sql::{push, statement};
use crate::link::{On, depth};
use crate::values::fence;
use crate::{Error, Semaphore, Wait};

/// A lease on a slot that has not changed since the search.
#[derive(Clone, Copy)]
pub(crate) struct NewLease<'a> {
    request: &'a LeaseRequest<'a>,
    holder: Option<&'a [u8]>,
    grant: Grant,
    /// The fence that the search has read.
    last: i64,
    mariadb: bool,
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
    /// Leases the slot, unless another session has it locked. The derived table comes first (`STRAIGHT_JOIN`), and only it
    /// contains the key: the update would wait for a row that it found by itself.
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
pub(crate) type LockedRow = (i32, i64, i64);

// Rows are locked by the primary key only: see "Semaphores" in DESIGN.md.

statement! {
    Mysql;
    LockFree<'a> { name: &'a [u8], number: i32 } -> (Integer, BigInt, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        "number, fence, token IS NOT NULL FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number = ", Integer = &self.number;
        " AND expires_us <= "; {Mysql::NOW};
        " FOR UPDATE SKIP LOCKED";
    }
}

statement! {
    Mysql;
    /// Locks the first slot that is free and not locked. The search, which goes before, has found that no session has the
    /// table locked; this one may read many rows.
    FirstUnlocked<'a> { name: &'a [u8], permits: i32 } -> (Integer, BigInt, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LONG_LIMIT_HINT};
        "number, fence, token IS NOT NULL FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number <= ", Integer = &self.permits;
        " AND expires_us <= "; {Mysql::NOW};
        " ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED";
    }
}

async fn lock_free(
    conn: &mut impl On<Mysql>,
    name: &[u8],
    number: i32,
) -> Result<Option<LockedRow>, Error> {
    let locked = execute::get_optional(conn, LockFree { name, number }).await;
    Ok(unless_ended(locked)?.flatten())
}

/// Locks a free slot that is not locked, until the statement or the open transaction ends. Tries the slot that the
/// search put first, then any.
pub(crate) async fn lock_one(
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
    found: &Candidates,
) -> Result<Option<LockedRow>, Error> {
    if context.candidates.is_none()
        && let Some(&(number, _)) = found.free.first()
    {
        let locked = lock_free(conn, semaphore.name().as_bytes(), number).await?;
        if locked.is_some() {
            return Ok(locked);
        }
    }
    lock_another(conn, semaphore, context).await
}

pub(crate) async fn lock_another(
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<Option<LockedRow>, Error> {
    let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
    let Some(open) = &context.candidates else {
        let locked = execute::get_optional(conn, FirstUnlocked { name, permits }).await;
        return Ok(unless_ended(locked)?.flatten());
    };
    for &number in open {
        let locked = lock_free(conn, name, number).await?;
        if locked.is_some() {
            return Ok(locked);
        }
    }
    Ok(None)
}

impl<'a> NewLease<'a> {
    pub(crate) fn new(
        request: &'a LeaseRequest<'a>,
        found: &Candidates,
        number: i32,
        last: i64,
    ) -> Self {
        let fence = fence::next(last.max(found.fence), found.now_us, number);
        Self {
            request,
            holder: request.holder.map(str::as_bytes),
            grant: Grant { number, fence },
            last,
            mariadb: found.mariadb,
        }
    }

    pub(crate) async fn claim(self, conn: &mut impl On<Mysql>) -> Result<Option<Grant>, Error> {
        let claimed = if self.mariadb && depth::depth(conn.status())? == 0 {
            let claim = ClaimNowait { lease: self };
            autocommit_retry!(conn, unless_locked(execute_cached(conn, &claim).await))?
        } else {
            let claim = Claim { lease: self };
            autocommit_retry!(conn, unless_locked(execute_cached(conn, &claim).await))?
        };
        Ok(self.granted(claimed))
    }

    /// [`claim`](Self::claim) of a slot that was not locked a moment ago. On MariaDB it fails if the server lets no session
    /// commit (`BACKUP STAGE BLOCK_COMMIT`): `claim` can't tell that from a locked row. This statement skips a locked row, so
    /// that only a lock on the table or on commits ends it with a time-out.
    pub(crate) async fn claim_unless_blocked(
        self,
        conn: &mut impl On<Mysql>,
    ) -> Result<Option<Grant>, Error> {
        if !self.mariadb || depth::depth(conn.status())? > 0 {
            return Ok(None);
        }
        let started = Instant::now();
        // A deadlock with another node (Galera) is a refusal: the next attempt tries again.
        match execute_cached(conn, &Claim { lease: self }).await {
            Err(failure) if failure.is_retryable() => Ok(None),
            Err(failure) if failure.class == ErrorClass::LockTimeout => {
                if is_table_locked(conn).await? {
                    return Ok(None);
                }
                let resource = self.request.semaphore.slot_resource();
                Err(Wait::No.timed_out(started, resource, Some(failure.error)))
            }
            claimed => Ok(self.granted(claimed?)),
        }
    }

    fn granted(self, claimed: usize) -> Option<Grant> {
        if claimed != 1 {
            return None;
        }
        LAST_CLAIMED.set(self.grant.number);
        Some(self.grant)
    }
}
