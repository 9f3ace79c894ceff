//! Leases or locks a free slot on MySQL and MariaDB: after a search that locks nothing, an update of one row by its key, which
//! does not wait if another session has the row locked. Raw SQL here, because the DSL has neither index hints nor locks in a
//! subquery, and Diesel would not cache the statements.

use std::time::Instant;

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Binary, Integer};

use crate::engine::dialect::Dialect;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::{MysqlError, unless_ended};
use crate::engine::mysql::slot_search::LAST_CLAIMED;
use crate::engine::mysql::sql::{
    ANY_JOIN_HINT, JOIN_UNLESS_TABLE_LOCKED, LIMIT_HINT, LONG_LIMIT_HINT, UNLESS_TABLE_LOCKED,
};
use crate::engine::slot_queries::{self, Lease};
use crate::engine::slots::{AttemptContext, AttemptOutcome, Grant, LeaseRequest};
use crate::engine::tables::Named;
use crate::error::classify::ErrorClass;
use crate::link::raw_sql::{push, statement};
use crate::link::{Link, depth};
use crate::values::fence;
use crate::{Error, Semaphore, Wait};

/// A lease on a slot that has not changed since the search.
#[derive(Clone, Copy)]
pub(crate) struct NewLease<'a> {
    lease: Lease<'a>,
    /// The fence that the search has read.
    last: i64,
    mariadb: bool,
}

/// The condition that it has not changed, after its number.
impl QueryFragment<Mysql> for NewLease<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        push!(out;
            " AND name = ", Binary = self.lease.request.semaphore.name().as_bytes();
            " AND fence = ", BigInt = &self.last;
            " AND expires_us <= "; {Mysql::NOW};
        );
        Ok(())
    }
}

statement! {
    Mysql;
    /// Leases the slot, unless another session has it locked. The derived table comes first (`STRAIGHT_JOIN`), and only it
    /// contains the key: the update would wait for a row that it found by itself. In an open transaction (`is_open`) it has two keys,
    /// as [`LockFree`].
    Claim<'a> { new: NewLease<'a>, is_open: bool } -> Integer, by text,
    |self| {
        {JOIN_UNLESS_TABLE_LOCKED}; "UPDATE "; {ANY_JOIN_HINT}; "(SELECT name, number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE number IN (",
        Integer = &self.new.lease.grant.number;
        {if self.is_open { ", 0)" } else { ")" }}; [&self.new];
        " LIMIT 1 FOR UPDATE SKIP LOCKED) AS free STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
         ON slot.name = free.name AND slot.number = free.number"; [&self.new.lease];
    }

    /// [`Claim`] on MariaDB, where a derived table takes ten times as long as the update. It fails when another session has
    /// the row locked. Not for an open transaction, which some servers then roll back (`innodb_rollback_on_timeout`).
    ClaimNowait<'a> { new: NewLease<'a> } -> Integer,
    |self| {
        "SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0 FOR UPDATE diesel_locks_slots FORCE INDEX (PRIMARY)";
        [&self.new.lease]; " WHERE number = ", Integer = &self.new.lease.grant.number;
        [&self.new];
    }

    // Rows are locked by the primary key only: see "Semaphores" in DESIGN.md.

    /// With a second key, which no row has: the row of a lease that another session was granted after the search is unlocked at once,
    /// and not at the end of the transaction.
    LockFree<'a> { name: &'a [u8], number: i32 } -> (Integer, BigInt, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        "number, fence, token IS NOT NULL FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number IN (", Integer = &self.number;
        ", 0) AND expires_us <= "; {Mysql::NOW};
        " FOR UPDATE SKIP LOCKED";
    }

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

/// The number and fence of a slot, and 1 if it has the token of an expired lease.
type LockedRow = (i32, i64, i64);

/// The number of changed rows of a statement that fails instead of waiting: 0 if it has failed so.
fn unless_locked(executed: Result<usize, MysqlError>) -> Result<usize, MysqlError> {
    match executed {
        Err(failure) if failure.class == ErrorClass::LockTimeout => Ok(0),
        result => result,
    }
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn try_once(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let found = match self.find_free_nowait(request.semaphore, context).await? {
            Ok(found) => found,
            Err(attempt) => return Ok(attempt),
        };
        // The first search of an acquisition finds out.
        if found.no_autocommit && !context.in_transaction {
            return Err(self.commits_nothing().await);
        }
        let refusal = found.refusal(request.semaphore, context);
        let Some(&(number, last)) = found.free.first() else {
            // Without candidates nothing was searched: autocommit is checked here.
            if !context.in_transaction && context.candidates.as_ref().is_some_and(Vec::is_empty) {
                self.ensure_commits().await?;
            }
            return Ok(refusal);
        };
        let lease_on = |number: i32, last: i64| {
            let fence = fence::next(last.max(found.fence), found.now_us, number);
            let (holder, grant) = (Named(request.holder), Grant { number, fence });
            NewLease {
                lease: Lease {
                    request,
                    holder,
                    grant,
                },
                last,
                mariadb: found.mariadb,
            }
        };
        // The result of the search may be outdated: the update requires the same fence. One slot only: where sessions compete,
        // the others that look free are locked as well, and each claim that fails costs as much as one that succeeds.
        let mut granted = self.claim(lease_on(number, last)).await?;
        if granted.is_none()
            && let Some((number, last, _)) = self.lock_another(request.semaphore, context).await?
        {
            let lease = lease_on(number, last);
            granted = self.claim(lease).await?;
            if granted.is_none() {
                granted = self.claim_unless_blocked(lease).await?;
            }
        }
        Ok(granted.map_or(refusal, AttemptOutcome::Granted))
    }

    async fn claim(&mut self, new: NewLease<'_>) -> Result<Option<Grant>, Error> {
        let is_open = depth::depth(self.0.status())? > 0;
        let claimed = if new.mariadb && !is_open {
            let claim = ClaimNowait { new };
            autocommit_retry!(self.0, unless_locked(self.execute_cached(&claim).await))?
        } else {
            let claim = Claim { new, is_open };
            autocommit_retry!(self.0, unless_locked(self.execute_cached(&claim).await))?
        };
        Ok(new.granted(claimed))
    }

    /// [`claim`](Self::claim) of a slot that was not locked a moment ago. On MariaDB it fails if the server lets no session
    /// commit (`BACKUP STAGE BLOCK_COMMIT`): `claim` can't tell that from a locked row. This statement skips a locked row, so
    /// that only a lock on the table or on commits ends it with a time-out.
    async fn claim_unless_blocked(&mut self, new: NewLease<'_>) -> Result<Option<Grant>, Error> {
        let is_open = depth::depth(self.0.status())? > 0;
        if !new.mariadb || is_open {
            return Ok(None);
        }
        let started = Instant::now();
        match self.execute_cached(Claim { new, is_open }).await {
            // A deadlock with another node (Galera) is a refusal: the next attempt tries again.
            Err(failure) if failure.is_retryable() => Ok(None),
            Err(failure) if failure.class == ErrorClass::LockTimeout => {
                if self.is_table_locked().await? {
                    return Ok(None);
                }
                let resource = new.lease.request.semaphore.slot_resource();
                Err(Wait::No.timed_out(started, resource, Some(failure.error)))
            }
            claimed => Ok(new.granted(claimed?)),
        }
    }

    pub(crate) async fn hold_on_server(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let found = match self.find_free_nowait(semaphore, context).await? {
            Ok(found) => found,
            Err(attempt) => return Ok(attempt),
        };
        self.ensure_one_writer(found.writer_unknown).await?;
        let refusal = found.refusal(semaphore, context);
        let Some(&(first, _)) = found.free.first() else {
            return Ok(refusal);
        };
        let mut locked = None;
        if context.candidates.is_none() {
            locked = self.lock_free(semaphore.name().as_bytes(), first).await?;
        }
        if locked.is_none() {
            locked = self.lock_another(semaphore, context).await?;
        }
        let Some((number, fence, leased)) = locked else {
            return Ok(refusal);
        };
        if leased > 0 {
            // The holder of an expired lease on the slot must not renew it after another has held the slot.
            let clear = slot_queries::clear_token(Named(semaphore.name()), number);
            self.execute(clear).await?;
        }
        Ok(AttemptOutcome::Granted(Grant { number, fence }))
    }

    /// Locks a free slot that is not locked, until the statement or the open transaction ends.
    async fn lock_another(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<Option<LockedRow>, Error> {
        let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
        let Some(open) = &context.candidates else {
            let locked = self.get_optional(FirstUnlocked { name, permits }).await;
            return Ok(unless_ended(locked)?.flatten());
        };
        for &number in open {
            let locked = self.lock_free(name, number).await?;
            if locked.is_some() {
                return Ok(locked);
            }
        }
        Ok(None)
    }

    async fn lock_free(&mut self, name: &[u8], number: i32) -> Result<Option<LockedRow>, Error> {
        let locked = self.get_optional(LockFree { name, number }).await;
        Ok(unless_ended(locked)?.flatten())
    }
}

impl NewLease<'_> {
    fn granted(self, claimed: usize) -> Option<Grant> {
        if claimed != 1 {
            return None;
        }
        LAST_CLAIMED.set(self.lease.grant.number);
        Some(self.lease.grant)
    }
}
