//! Leases a free slot on MySQL and MariaDB: a search that locks nothing, and then an update of one row by its key,
//! which does not wait if another session has the row locked.

use std::cell::Cell;
use std::time::Instant;

use diesel::mysql::Mysql;

use super::autocommit;
use super::execute::{MysqlError, Run};
use super::retry::unless_locked;
use super::slot_sql::claim::{Claim, ClaimNowait, FirstUnlocked, LockFree, LockedRow, NewLease};
use super::slot_sql::search::{
    Candidate, CountSlots, FewRow, FreeAmong, FreeAndUnlocked, LastFence, MARIADB_FLAG,
    NO_AUTOCOMMIT_FLAG, ProbeTable, ScanExpiryIndex, ScanExpiryIndexSlowly, ScanPrimary,
    WRITER_UNKNOWN_FLAG,
};
use crate::engine::retry::{StatementError, autocommit_retry};
use crate::error::classify::ErrorClass;
use crate::limits::FEW_SLOTS;
use crate::link::Link;
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, Grant, LeaseRequest, classify_refusal, lowest_grantable,
};
use crate::{Error, Semaphore, Wait, backoff, semaphore::fence, transaction::depth};

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
    pub(super) async fn ensure_commits(
        &self,
        conn: &mut impl Link<Backend = Mysql>,
        context: &AttemptContext,
    ) -> Result<(), Error> {
        if self.no_autocommit && !context.in_transaction {
            return Err(autocommit::reason(conn).await);
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
            let open = &numbers_as_json(open);
            let free: Vec<(i64, i32, i64)> = FreeAmong { name, open }.load(conn).await?;
            for (now_us, number, fence) in free {
                found.add((None, now_us, Some(number), Some(fence)));
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

fn numbers_as_json(numbers: &[i32]) -> String {
    let numbers: Vec<_> = numbers.iter().map(i32::to_string).collect();
    format!("[{}]", numbers.join(","))
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

/// The slots that may be granted although slots above the number of permits may be held; `None` while another session has
/// the table locked.
pub(super) async fn grantable_nowait(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
) -> Result<Option<Vec<i32>>, Error> {
    let mut slow_searches = 0;
    loop {
        match grantable(conn, semaphore).await {
            Err(failure) if failure.class == ErrorClass::LockTimeout => return Ok(None),
            Err(failure) if failure.class == ErrorClass::StatementTimeout => {
                slow_searches += 1;
                if slow_searches >= MAX_SLOW_SEARCHES || is_table_locked(conn).await? {
                    return Ok(None);
                }
            }
            slots => return Ok(Some(slots?)),
        }
    }
}

async fn grantable(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
) -> Result<Vec<i32>, MysqlError> {
    let name = semaphore.name().as_bytes();
    let slots: i64 = CountSlots { name }.get_result(conn).await?;
    let free: Vec<i32> = FreeAndUnlocked { name }.load(conn).await?;
    Ok(lowest_grantable(free, slots, semaphore.permits_i32()))
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
    let lease = lease_on(request, found, number, last);
    let grant = lease.grant;
    let claimed = if found.mariadb && depth::depth(conn)? == 0 {
        let claim = ClaimNowait { lease };
        autocommit_retry!(conn, unless_locked((&claim).execute_cached(conn).await))?
    } else {
        let claim = Claim { lease };
        autocommit_retry!(conn, unless_locked((&claim).execute_cached(conn).await))?
    };
    Ok(granted(grant, claimed))
}

/// [`claim`] of a slot that was not locked a moment ago. On MariaDB it fails if the server lets no session commit
/// (`BACKUP STAGE BLOCK_COMMIT`): `claim` can't tell that from a locked row. This statement skips a locked row, so that only a
/// lock on the table or on commits ends it with a time-out.
pub(super) async fn claim_unless_blocked(
    conn: &mut impl Link<Backend = Mysql>,
    request: &LeaseRequest<'_>,
    found: &Candidates,
    number: i32,
    last: i64,
) -> Result<Option<Grant>, Error> {
    if !found.mariadb || depth::depth(conn)? > 0 {
        return Ok(None);
    }
    let lease = lease_on(request, found, number, last);
    let grant = lease.grant;
    let claim = Claim { lease };
    let started = Instant::now();
    // A deadlock with another node (Galera) is a refusal: the next attempt tries again.
    match (&claim).execute_cached(conn).await {
        Err(failure) if failure.is_retryable() => Ok(None),
        Err(failure) if failure.class == ErrorClass::LockTimeout => {
            if is_table_locked(conn).await? {
                return Ok(None);
            }
            let resource = request.semaphore.slot_resource();
            Err(Wait::No.timed_out(started, resource, Some(failure.error)))
        }
        claimed => Ok(granted(grant, claimed?)),
    }
}

fn lease_on<'a>(
    request: &'a LeaseRequest<'a>,
    found: &Candidates,
    number: i32,
    last: i64,
) -> NewLease<'a> {
    NewLease {
        request,
        holder: request.holder.map(str::as_bytes),
        grant: Grant {
            number,
            fence: fence::next(last.max(found.fence), found.now_us, number),
        },
        last,
    }
}

/// The grant, if the claim has changed its row.
fn granted(grant: Grant, claimed: usize) -> Option<Grant> {
    if claimed != 1 {
        return None;
    }
    LAST_CLAIMED.set(grant.number);
    Some(grant)
}
