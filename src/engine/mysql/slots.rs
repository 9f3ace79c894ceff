//! Slots of semaphores on MySQL and MariaDB.
//!
//! Every statement that changes a slot selects its row by the whole key, so that at any isolation level InnoDB locks
//! that row and no gap, and no session waits for two rows.

use std::time::Duration;

use diesel::mysql::Mysql;

use super::bytes::Bytes;
use super::execute::{self, MysqlError, Run};
use super::isolation::{Unknown, assert_in_transaction};
use super::retry::at_read_committed;
use super::slot_batches::{parts, release_part, renew_part};
use super::slot_claim::{
    claim, claim_unless_blocked, find_free_nowait, grantable_nowait, is_table_locked, lock_another,
    lock_one,
};
use super::slot_sql;
use super::{active_isolation, autocommit, big_selects, lists, session, sql, writers};
use crate::engine::literal;
use crate::engine::retry::StatementError;
use crate::engine::slot_methods::{locking_slot_methods, slot_methods};
use crate::error::classify::ErrorClass;
use crate::inspect::list_options::ListRequest;
use crate::link::Link;
use crate::poll::caught;
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreBackend, SemaphoreRow,
};
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::semaphore::slot_times::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot};

slot_methods!(impl Link<Backend = Mysql>, execute, MysqlError);
locking_slot_methods!(
    Mysql,
    impl Link<Backend = Mysql>,
    [u8],
    Bytes,
    execute,
    slot_sql::delete_locked_above,
    MysqlError
);

impl<C: Link<Backend = Mysql>> SemaphoreBackend<C> for Mysql {
    async fn database_id(conn: &mut C) -> Result<Option<String>, Error> {
        let (first, second): (i64, i64) = slot_sql::Database {}.get_result(conn).await?;
        Ok(Some(format!("mysql {first} {second}")))
    }

    async fn try_lease(
        conn: &mut C,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            ensure_read_committed(conn, request.semaphore).await?;
            return try_once(conn, request, context).await;
        }
        loop {
            // On Galera each statement may conflict with one on another node.
            match try_once(conn, request, context).await {
                Err(error) if error.is_retryable() => {}
                result => return result,
            }
        }
    }

    async fn begin_hold(conn: &mut C) -> Result<bool, Error> {
        session::begin(conn, sql::BEGIN_MARKED).await?;
        Ok(true)
    }

    async fn try_hold(
        conn: &mut C,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            ensure_read_committed(conn, semaphore).await?;
        }
        let found = match find_free_nowait(conn, semaphore, context).await? {
            Ok(found) => found,
            Err(attempt) => return Ok(attempt),
        };
        writers::ensure_one(conn, found.writer_unknown).await?;
        if found.free.is_empty() {
            return Ok(found.refusal(semaphore, context));
        }
        let Some((number, fence, leased)) = lock_one(conn, semaphore, context, &found).await?
        else {
            return Ok(found.refusal(semaphore, context));
        };
        if leased > 0 {
            // The holder of an expired lease on the slot must not renew it after another has held the slot.
            let clear = slot_sql::clear_token(semaphore.name().as_bytes(), number);
            clear.execute(conn).await?;
        }
        Ok(AttemptOutcome::Granted(Grant { number, fence }))
    }

    async fn grantable_slots(
        conn: &mut C,
        semaphore: &Semaphore,
    ) -> Result<Option<Vec<i32>>, Error> {
        grantable_nowait(conn, semaphore).await
    }

    async fn resize_in_progress(conn: &mut C) -> Result<bool, Error> {
        match floor_is_locked(conn).await {
            Err(failure) if failure.is_retryable() => Ok(true),
            // The table is locked, for an unknown time.
            Err(failure) if failure.is_end_of_wait() => Ok(false),
            locked => Ok(locked?),
        }
    }

    async fn create_batch(
        conn: &mut C,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
        at_read_committed!(
            conn,
            match create_batch(conn, name, permits, block).await {
                // MariaDB, where only the wait for a locked table fails so. On MySQL a time limit ends it, and also
                // the search of a busy server.
                Err(failure) if failure.class == ErrorClass::LockTimeout && !block => {
                    Ok(BatchOutcome::TableLocked)
                }
                Err(failure) if failure.is_end_of_wait() && !block => Ok(BatchOutcome::Contended),
                added => added,
            }
        )
    }

    async fn create_fence_floor(conn: &mut C) -> Result<(), Error> {
        insert_fence_floor(conn).await
    }

    async fn raise_fence_floor(conn: &mut C, by: Duration) -> Result<RaiseOutcome, Error> {
        at_read_committed!(conn, raise_fence_floor(conn, by).await)
    }

    async fn register(conn: &mut C, semaphore: &Semaphore) -> Result<(), Error> {
        let name = semaphore.name().as_bytes();
        at_read_committed!(conn, register(conn, name, semaphore.permits_i32()).await)?;
        Ok(())
    }

    async fn renew_one(
        conn: &mut C,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        let renewed = autocommit_retry!(conn, renew(conn, slot, lease_us, expiry).await)?;
        ensure_commits_unless_changed(conn, renewed, expiry).await
    }

    async fn release(conn: &mut C, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        let released = autocommit_retry!(conn, release(conn, slot, expiry).await)?;
        ensure_commits_unless_changed(conn, released, expiry).await
    }

    fn release_unused_statement(semaphore: &str, token: &[u8]) -> String {
        let mut name = String::new();
        literal::push_for_mysql(&mut name, semaphore);
        let token = literal::hexadecimal(token);
        let release = slot_sql::release_unused_text(&name, &format!("x'{token}'"));
        // Without the slot's number the statement reads all slots of the semaphore. At this level it does not wait for
        // those of other tokens, which others may have locked. The session ends afterwards. The level of one transaction could
        // not be set while another one is open.
        format!("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; {release}")
    }

    async fn release_unused(conn: &mut C, slot: &Slot) -> Result<usize, Error> {
        let released = autocommit_retry!(conn, release_unused(conn, slot).await)?;
        ensure_commits_unless_changed(conn, released, Expiry::IncludeExpired).await
    }

    async fn pin(conn: &mut C, slot: &Slot) -> Result<bool, Error> {
        let pin = slot_sql::Pin { key: key(slot) };
        let Some((in_transaction, unknown)): Option<(_, i64)> = pin.get_optional(conn).await?
        else {
            return Ok(false);
        };
        // After the statement, whose lock lasts only inside a transaction.
        if active_isolation::entered(conn).is_none() {
            assert_in_transaction(conn, in_transaction).await?;
        }
        writers::ensure_one(conn, unknown == 1).await?;
        Ok(true)
    }

    async fn list_held_nowait(conn: &mut C, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        let held = slot_sql::HeldNowait {
            name: name.as_bytes(),
        };
        let rows: Result<_, MysqlError> = held.load(conn).await;
        match rows {
            Err(failure) if failure.is_end_of_wait() => Ok(None),
            rows => Ok(Some(rows?)),
        }
    }

    async fn first_slot_nowait(conn: &mut C, name: &str) -> Result<FirstSlot, Error> {
        let name = name.as_bytes();
        let mut row: Result<Option<SlotTimesRow>, MysqlError> =
            slot_sql::FirstSlotNowait { name }.get_optional(conn).await;
        if row.as_ref().is_err_and(MysqlError::is_end_of_wait) {
            // On MySQL the limit also ends a statement that is slow, as on a busy server.
            if is_table_locked(conn).await? {
                return Ok(FirstSlot::TableLocked);
            }
            row = slot_sql::FirstSlotSlowly { name }.get_optional(conn).await;
        }
        match row {
            Err(failure) if failure.is_end_of_wait() => Ok(FirstSlot::TableLocked),
            row => Ok(row?.into()),
        }
    }

    async fn list_held(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, HeldRow)>, Error> {
        lists::list_held(conn, request).await
    }

    async fn list_semaphores(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<SemaphoreRow>, Error> {
        lists::list_semaphores(conn, request).await
    }

    async fn now_us(conn: &mut C) -> Result<i64, Error> {
        autocommit_retry!(conn, slot_sql::now().get_result(conn).await)
    }

    async fn release_all(conn: &mut C, name: &str) -> Result<usize, Error> {
        autocommit::ensure(conn).await?;
        let released = caught(async {
            big_selects::permit(conn).await?;
            force_release(conn, name.as_bytes()).await
        });
        let released = released.await;
        big_selects::restore(conn, released).await
    }

    async fn purge_unused_slots(conn: &mut C, age_us: i64) -> Result<usize, Error> {
        // With several writers, sessions on other nodes can add slots at the same time.
        writers::ensure_one(conn, true).await?;
        let purged = caught(async {
            big_selects::permit(conn).await?;
            purge(conn, age_us).await
        });
        let purged = purged.await;
        big_selects::restore(conn, purged).await
    }

    async fn release_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut locked = Vec::new();
        for leases in parts(leases) {
            locked.extend(release_part(conn, leases, kind).await?);
        }
        Ok(locked)
    }

    async fn renew_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let mut renewed = Vec::new();
        for leases in parts(leases) {
            renewed.extend(renew_part(conn, leases).await?);
        }
        Ok(renewed)
    }
}

/// The number of changed rows. If there is none, asks for the reason: a statement with the condition
/// [`Clock::COMMITTED_AT_ONCE`](crate::engine::clock::Clock) changes nothing that would not be committed. Not after the
/// first of two statements, whose lease may have expired.
async fn ensure_commits_unless_changed(
    conn: &mut impl Link<Backend = Mysql>,
    changed: usize,
    expiry: Expiry,
) -> Result<usize, Error> {
    if changed == 0 && expiry == Expiry::IncludeExpired {
        autocommit::ensure(conn).await?;
    }
    Ok(changed)
}

async fn register(
    conn: &mut impl Link<Backend = Mysql>,
    name: &[u8],
    permits: i32,
) -> Result<usize, MysqlError> {
    // Serializes sessions that register at the same time.
    let _: Vec<i64> = slot_sql::lock_fence_floor().load(conn).await?;
    slot_sql::register(name, permits).execute(conn).await
}

async fn try_once(
    conn: &mut impl Link<Backend = Mysql>,
    request: &LeaseRequest<'_>,
    context: &AttemptContext,
) -> Result<AttemptOutcome, Error> {
    let found = match find_free_nowait(conn, request.semaphore, context).await? {
        Ok(found) => found,
        Err(attempt) => return Ok(attempt),
    };
    found.ensure_commits(conn, context).await?;
    if found.free.is_empty() {
        return Ok(found.refusal(request.semaphore, context));
    }
    // The result of the search may be outdated: the update requires the same fence. One slot only: where sessions compete,
    // the others that look free are locked as well, and each claim that fails costs as much as one that succeeds.
    if let Some(&(number, last)) = found.free.first()
        && let Some(granted) = claim(conn, request, &found, number, last).await?
    {
        return Ok(AttemptOutcome::Granted(granted));
    }
    if let Some((number, last, _)) = lock_another(conn, request.semaphore, context).await? {
        let granted = match claim(conn, request, &found, number, last).await? {
            None => claim_unless_blocked(conn, request, &found, number, last).await?,
            granted => granted,
        };
        if let Some(granted) = granted {
            return Ok(AttemptOutcome::Granted(granted));
        }
    }
    Ok(found.refusal(request.semaphore, context))
}

/// Fails in a transaction that reads from a snapshot, which would show outdated slots, and where no lock would last.
async fn ensure_read_committed(
    conn: &mut impl Link<Backend = Mysql>,
    semaphore: &Semaphore,
) -> Result<(), Error> {
    let resource = || semaphore.slot_resource();
    match Unknown::of(active_isolation::entered(conn), resource)? {
        Some(unknown) => unknown.ask(conn, resource).await,
        None => Ok(()),
    }
}
