//! Leases a free slot on MySQL and MariaDB: a search that locks nothing, and then an update of one row by its key,
//! which does not wait if another session has the row locked.

use std::cell::Cell;

use diesel::mysql::Mysql;

use super::autocommit;
use super::execute::{MysqlError, Run};
use super::retry::unless_locked;
use super::slot_sql::claim::{Claim, ClaimNowait, FirstUnlocked, LockFree, LockedRow, NewLease};
use super::slot_sql::search::{
    Candidate, FewRow, LastFence, MARIADB_FLAG, NO_AUTOCOMMIT_FLAG, ProbeTable, ScanExpiryIndex,
    ScanExpiryIndexSlowly, ScanPrimary, WRITER_UNKNOWN_FLAG, look_among,
};
use crate::engine::retry::autocommit_retry;
use crate::error::classify::ErrorClass;
use crate::limits::FEW_SLOTS;
use crate::link::Link;
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, Grant, LeaseRequest, classify_refusal,
};
use crate::{Error, Semaphore, backoff, semaphore::fence, transaction::depth};

thread_local! {
    /// The slot that this thread claimed last, and tries first the next time. So threads that repeatedly acquire slots
    /// of the same semaphore rarely compete for one.
    static LAST_CLAIMED: Cell<i32> = const { Cell::new(0) };
}

/// The result of a search.
#[derive(Default)]
pub(super) struct Candidates {
    slots: Option<i32>,
    now_us: i64,
    /// Not below the fence of any grant that was committed before the search.
    fence: i64,
    pub(super) free: Vec<(i32, i64)>,
    mariadb: bool,
    pub(super) writer_unknown: bool,
    /// Whether a change outside a transaction would not be committed.
    no_autocommit: bool,
}

impl Candidates {
    fn note(&mut self, flags: i32) {
        self.mariadb = flags & MARIADB_FLAG != 0;
        self.writer_unknown |= flags & WRITER_UNKNOWN_FLAG != 0;
        self.no_autocommit |= flags & NO_AUTOCOMMIT_FLAG != 0;
    }

    /// Fails if a lease would not be committed. The first search of an acquisition finds out.
    pub(super) fn ensure_commits(&self, context: &AttemptContext) -> Result<(), Error> {
        if self.no_autocommit && !context.in_transaction {
            return Err(autocommit::refused());
        }
        Ok(())
    }

    fn add(&mut self, (slots, now_us, number, fence): Candidate) {
        self.slots = self.slots.or(slots);
        self.now_us = now_us;
        self.fence = self.fence.max(fence.unwrap_or(0));
        self.free.extend(number.zip(fence));
    }

    /// The outcome when there was no free slot, or all free slots were locked.
    pub(super) fn refusal(
        &self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> AttemptOutcome {
        let any_free = !self.free.is_empty();
        classify_refusal(self.slots, semaphore.permits_i32(), any_free, context)
    }
}

/// Finds free slots without locking. Puts the thread's preferred slot first, or a random one, so that sessions that
/// search at the same time try different slots.
async fn find_free(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
    slowly: bool,
) -> Result<Candidates, MysqlError> {
    let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
    let mut found = Candidates::default();
    match &context.candidates {
        None if permits <= FEW_SLOTS => {
            let rows: Vec<FewRow> = ScanPrimary { name, permits }.load(conn).await?;
            for (number, fence, expires_us, now_us, floor, flags) in rows {
                found.note(flags);
                found.slots = found.slots.max(Some(number));
                found.now_us = now_us;
                found.fence = found.fence.max(fence).max(floor);
                if expires_us <= now_us {
                    found.free.push((number, fence));
                }
            }
        }
        None => {
            let rows: Vec<(Candidate, i32)> = if slowly {
                ScanExpiryIndexSlowly { name }.load(conn).await?
            } else {
                ScanExpiryIndex { name }.load(conn).await?
            };
            for (row, flags) in rows {
                found.note(flags);
                found.add(row);
            }
        }
        Some(open) => {
            // Read before the slots. A grant committed between the two reads is concurrent with this one, so their
            // fences need no order.
            found.fence = LastFence { name }.get_result(conn).await?;
            let rows: Vec<Candidate> = look_among(name, open).load(conn).await?;
            for row in rows {
                found.add(row);
            }
        }
    }
    if context.candidates.is_none() && found.slots > Some(permits) {
        found.free.clear();
    }
    let preferred = context.preferred.unwrap_or_else(|| LAST_CLAIMED.get());
    let chosen = found
        .free
        .iter()
        .position(|(number, _)| *number == preferred)
        .unwrap_or_else(|| backoff::random_below(found.free.len()));
    found.free.rotate_left(chosen);
    Ok(found)
}

/// [`find_free`], or the outcome of the attempt when another session has the table locked.
pub(super) async fn find_free_nowait(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<Result<Candidates, AttemptOutcome>, Error> {
    let mut slow_searches = 0;
    loop {
        match find_free(conn, semaphore, context, slow_searches > 0).await {
            // MariaDB, where the search does not wait for a locked table.
            Err(failure) if failure.class == ErrorClass::LockTimeout => {
                return Ok(Err(AttemptOutcome::Locked));
            }
            // MySQL, where a time limit ends the wait for a locked table, and also the search of a busy server.
            Err(failure) if failure.class == ErrorClass::StatementTimeout => {
                slow_searches += 1;
                if slow_searches >= MAX_SLOW_SEARCHES || is_table_locked(conn).await? {
                    return Ok(Err(AttemptOutcome::AllLeased));
                }
            }
            found => return Ok(Ok(found?)),
        }
    }
}

/// How many searches may be ended by their time limit although no session has the table locked.
const MAX_SLOW_SEARCHES: u32 = 5;

/// Whether another session has the table locked.
pub(super) async fn is_table_locked(conn: &mut impl Link<Backend = Mysql>) -> Result<bool, Error> {
    let probed: Result<i64, MysqlError> = ProbeTable {}.get_result(conn).await;
    match probed {
        Err(failure) if failure.is_end_of_wait() => Ok(true),
        probed => Ok(probed.map(|_| false)?),
    }
}

/// Locks a free slot that is not locked, until the statement or the open transaction ends. Tries the slot that the
/// search put first, then any.
pub(super) async fn lock_one(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
    found: &Candidates,
) -> Result<Option<LockedRow>, Error> {
    if context.candidates.is_none()
        && let Some(&(number, _)) = found.free.first()
    {
        let name = semaphore.name().as_bytes();
        let locked = unless_table_locked(LockFree { name, number }.get_optional(conn).await)?;
        if locked.is_some() {
            return Ok(locked);
        }
    }
    lock_another(conn, semaphore, context).await
}

/// Locks a free slot that is not locked, until the statement or the open transaction ends.
pub(super) async fn lock_another(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<Option<LockedRow>, Error> {
    let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
    let Some(open) = &context.candidates else {
        return unless_table_locked(FirstUnlocked { name, permits }.get_optional(conn).await);
    };
    for &number in open {
        let locked = unless_table_locked(LockFree { name, number }.get_optional(conn).await)?;
        if locked.is_some() {
            return Ok(locked);
        }
    }
    Ok(None)
}

/// The row, or none when another session has the table locked.
fn unless_table_locked(
    row: Result<Option<LockedRow>, MysqlError>,
) -> Result<Option<LockedRow>, Error> {
    match row {
        Err(failure) if failure.is_end_of_wait() => Ok(None),
        row => Ok(row?),
    }
}

/// Leases the slot if it has not changed since the search; returns `None` if it has changed or is locked.
pub(super) async fn claim(
    conn: &mut impl Link<Backend = Mysql>,
    request: &LeaseRequest<'_>,
    found: &Candidates,
    number: i32,
    last: i64,
) -> Result<Option<Grant>, Error> {
    let grant = Grant {
        number,
        fence: fence::next(last.max(found.fence), found.now_us, number),
    };
    let lease = NewLease {
        request,
        holder: request.holder.map(str::as_bytes),
        grant,
        last,
    };
    let claimed = if found.mariadb && depth::depth(conn)? == 0 {
        let claim = ClaimNowait { lease };
        autocommit_retry!(conn, unless_locked((&claim).execute_cached(conn).await))?
    } else {
        let claim = Claim { lease };
        autocommit_retry!(conn, unless_locked((&claim).execute_cached(conn).await))?
    };
    if claimed != 1 {
        return Ok(None);
    }
    LAST_CLAIMED.set(number);
    Ok(Some(grant))
}
