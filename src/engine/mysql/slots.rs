//! Slots of semaphores on MySQL and MariaDB.
//!
//! Every statement that changes a slot selects its row by the whole key, so that at any isolation level InnoDB locks
//! that row and no gap, and no session waits for two rows. Except what a dropped future sends: it knows the token only, and
//! the session ends afterwards.

use std::time::Duration;

use async_trait::async_trait;
use diesel::mysql::Mysql;
use diesel::prelude::QueryDsl;
use diesel::query_builder::{QueryFragment, QueryId};

use crate::engine::ending::autocommit_retry;
use crate::engine::literal;
use crate::engine::mysql::execute::{self, MysqlError, end_or_restart, unless_ended};
use crate::engine::mysql::lists::{Permit, Restore, assert_read};
use crate::engine::mysql::session::{self, Unknown, assert_in_transaction, ensure_commits};
use crate::engine::mysql::slot_batches::{parts, release_part, renew_part};
use crate::engine::mysql::slot_claim::{NewLease, lock_another, lock_one};
use crate::engine::mysql::slot_resize::{
    add_slots, floor_is_locked, largest_fence, purge, raise, register,
};
use crate::engine::mysql::slot_search::{find_free_nowait, grantable_nowait, is_table_locked};
use crate::engine::mysql::writers::{self, Cluster};
use crate::engine::mysql::{MysqlEngine, active_isolation, galera, lists, slot_sql, sql};
use crate::engine::operations::SemaphoreBackend;
use crate::engine::slot_queries::{
    self, Key, Release, ReleaseUnused, Renew, Unexpired, UpdateSlot,
};
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Expiry, Grant, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreRow,
};
use crate::engine::tables::{Named, diesel_locks_slots as slots, in_range};
use crate::error::classify::ErrorClass;
use crate::link::{On, depth};
use crate::rt::caught;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::slot::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot};

#[async_trait]
impl<C: On<Mysql>> SemaphoreBackend for MysqlEngine<'_, C> {
    async fn database_id(&mut self) -> Result<Option<String>, Error> {
        let query = slot_sql::Database {};
        let (first, second): (i64, i64) = execute::get_result(self.0, query).await?;
        Ok(Some(format!("mysql {first} {second}")))
    }

    async fn try_lease(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            ensure_read_committed(self.0, request.semaphore).await?;
            return try_once(self.0, request, context).await;
        }
        loop {
            // On Galera each statement may conflict with one on another node.
            match try_once(self.0, request, context).await {
                Err(error) if error.is_retryable() => {}
                result => return result,
            }
        }
    }

    async fn begin_hold(&mut self) -> Result<bool, Error> {
        session::begin(self.0, &sql::BEGIN).await?;
        Ok(true)
    }

    async fn try_hold(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            ensure_read_committed(self.0, semaphore).await?;
        }
        if !writers::is_galera(self.0).await? {
            let held = try_hold(self.0, semaphore, context).await;
            if !writers::is_refused_on_galera(&held) {
                return held;
            }
        }
        galera::try_hold(self.0, semaphore, context).await
    }

    async fn grantable_slots(&mut self, semaphore: &Semaphore) -> Result<Option<Vec<i32>>, Error> {
        grantable_nowait(self.0, semaphore).await
    }

    async fn resize_in_progress(&mut self) -> Result<bool, Error> {
        match floor_is_locked(self.0).await {
            Err(failure) if failure.is_retryable() => Ok(true),
            // The table is locked, for an unknown time.
            Err(failure) if failure.is_end_of_wait() => Ok(false),
            locked => Ok(locked?),
        }
    }

    async fn create_batch(
        &mut self,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        loop {
            session::begin(self.0, &sql::BEGIN).await?;
            let added = match add_slots(self.0, semaphore, block).await {
                // MariaDB, where only the wait for a locked table fails so. On MySQL a time limit ends it, and also
                // the search of a busy server.
                Err(failure) if failure.class == ErrorClass::LockTimeout && !block => {
                    Ok(BatchOutcome::TableLocked)
                }
                Err(failure) if failure.is_end_of_wait() && !block => Ok(BatchOutcome::Contended),
                added => added,
            };
            if let Some(added) = end_or_restart(self.0, added).await? {
                return Ok(added);
            }
        }
    }

    async fn create_fence_floor(&mut self) -> Result<(), Error> {
        let last = autocommit_retry!(self.0, largest_fence(self.0).await)?;
        let insert = || slot_queries::insert_fence_floor(last);
        autocommit_retry!(self.0, execute::execute(self.0, insert()).await)?;
        Ok(())
    }

    async fn raise_fence_floor(&mut self, by: Duration) -> Result<RaiseOutcome, Error> {
        loop {
            session::begin(self.0, &sql::BEGIN).await?;
            let raised = raise(self.0, by).await;
            if let Some(raised) = end_or_restart(self.0, raised).await? {
                return Ok(raised);
            }
        }
    }

    async fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error> {
        loop {
            session::begin(self.0, &sql::BEGIN).await?;
            let registered = register(self.0, semaphore).await;
            if end_or_restart(self.0, registered).await?.is_some() {
                return Ok(());
            }
        }
    }

    async fn renew_one(
        &mut self,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        let conn = &mut *self.0;
        let renewed =
            autocommit_retry!(conn, update(conn, Renew { lease_us }, slot, expiry).await)?;
        ensure_commits_unless_changed(conn, renewed, expiry).await
    }

    async fn release(&mut self, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        let released = autocommit_retry!(self.0, update(self.0, Release, slot, expiry).await)?;
        ensure_commits_unless_changed(self.0, released, expiry).await
    }

    fn release_unused_statement(&self, semaphore: &str, token: &[u8]) -> String {
        let mut name = String::new();
        literal::push_for_mysql(&mut name, semaphore);
        let token = literal::hexadecimal(token);
        let release = ReleaseUnused::text::<Mysql>(&name, &format!("x'{token}'"));
        // Without the slot's number the statement reads all slots of the semaphore. At this level it does not wait for
        // those of other tokens, which others may have locked. The session ends afterwards. The level of one transaction could
        // not be set while another one is open.
        format!("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; {release}")
    }

    async fn release_unused(&mut self, slot: &Slot) -> Result<usize, Error> {
        let conn = &mut *self.0;
        let expiry = Expiry::IncludeExpired;
        let released = autocommit_retry!(conn, update(conn, ReleaseUnused, slot, expiry).await)?;
        ensure_commits_unless_changed(conn, released, expiry).await
    }

    async fn pin(&mut self, slot: &Slot) -> Result<bool, Error> {
        if !writers::is_galera(self.0).await? {
            let pinned = pin(self.0, slot).await;
            if !writers::is_refused_on_galera(&pinned) {
                return pinned;
            }
        }
        galera::pin(self.0, slot).await
    }

    async fn list_held_nowait(&mut self, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        let name = name.as_bytes();
        let rows = execute::load(self.0, slot_sql::HeldNowait { name }).await;
        Ok(unless_ended(rows)?)
    }

    async fn first_slot_nowait(&mut self, name: &str) -> Result<FirstSlot, Error> {
        let name = name.as_bytes();
        let first = slot_sql::FirstSlot::<false> { name };
        let mut row = unless_ended(execute::get_optional(self.0, first).await)?;
        // On MySQL the limit also ends a statement that is slow, as on a busy server.
        if row.is_none() && !is_table_locked(self.0).await? {
            let first = slot_sql::FirstSlot::<true> { name };
            row = unless_ended(execute::get_optional(self.0, first).await)?;
        }
        let row: Option<Option<SlotTimesRow>> = row;
        Ok(row.map_or(FirstSlot::TableLocked, FirstSlot::from))
    }

    async fn list_held(&mut self, request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error> {
        let query = || slot_queries::list_held(request.limit).into_boxed::<Mysql>();
        let query = || in_range(query(), slots::name, &request.names);
        let rows: Vec<(String, HeldRow)> = lists::load_list(self.0, query).await?;
        assert_read(rows.iter().map(|(name, _)| name.as_bytes()))?;
        assert_read(rows.iter().filter_map(|(_, row)| row.token.as_deref()))?;
        // A broken client library does not lose a name of one byte, a slot may have no token, and a holder may be empty.
        let mut holders = rows.iter().filter_map(|(_, row)| row.holder.as_deref());
        if holders.any(str::is_empty) {
            lists::check_client_library(self.0).await?;
        }
        Ok(rows)
    }

    async fn list_semaphores(&mut self, request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error> {
        let query = || slot_queries::list_semaphores(request.limit).into_boxed::<Mysql>();
        let query = || in_range(query(), slots::name, &request.names);
        let rows: Vec<SemaphoreRow> = lists::load_list(self.0, query).await?;
        assert_read(rows.iter().map(|row| row.name.as_bytes()))?;
        Ok(rows)
    }

    async fn now_us(&mut self) -> Result<i64, Error> {
        autocommit_retry!(
            self.0,
            execute::get_result(self.0, slot_queries::now()).await
        )
    }

    async fn release_all(&mut self, name: &str) -> Result<usize, Error> {
        ensure_commits(self.0).await?;
        let released = caught(async {
            execute::execute(self.0, Permit {}).await?;
            force_release(self.0, Named(name)).await
        });
        let released = released.await;
        execute::restore_by(self.0, &Restore {}, released).await
    }

    async fn purge_unused_slots(&mut self, age_us: i64) -> Result<usize, Error> {
        // Sessions on other nodes can add slots at the same time: on these products both might commit.
        if let Some(cluster @ (Cluster::TiDb | Cluster::Vitess)) = writers::find(self.0).await? {
            return Err(cluster.refused());
        }
        let purged = caught(async {
            execute::execute(self.0, Permit {}).await?;
            purge(self.0, age_us).await
        });
        let purged = purged.await;
        execute::restore_by(self.0, &Restore {}, purged).await
    }

    async fn release_batch(
        &mut self,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut locked = Vec::new();
        for leases in parts(leases) {
            locked.extend(release_part(self.0, leases, kind).await?);
        }
        Ok(locked)
    }

    async fn renew_batch(
        &mut self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let mut renewed = Vec::new();
        for leases in parts(leases) {
            renewed.extend(renew_part(self.0, leases).await?);
        }
        Ok(renewed)
    }
}

async fn pin(conn: &mut impl On<Mysql>, slot: &Slot) -> Result<bool, Error> {
    let key = Key::of(slot, true);
    let pin = execute::get_optional(conn, slot_sql::Pin { key }).await?;
    let Some((in_transaction, unknown)): Option<(_, i64)> = pin else {
        return Ok(false);
    };
    // After the statement, whose lock lasts only inside a transaction.
    if active_isolation::entered(conn).is_none() {
        assert_in_transaction(conn, in_transaction).await?;
    }
    writers::ensure_one(conn, unknown == 1).await?;
    Ok(true)
}

/// The number of changed rows. If there is none, asks for the reason: a statement with the condition
/// [`Clock::COMMITTED_AT_ONCE`](crate::engine::clock::Clock) changes nothing that would not be committed. Not after the
/// first of two statements, whose lease may have expired.
async fn ensure_commits_unless_changed(
    conn: &mut impl On<Mysql>,
    changed: usize,
    expiry: Expiry,
) -> Result<usize, Error> {
    if changed == 0 && expiry == Expiry::IncludeExpired {
        ensure_commits(conn).await?;
    }
    Ok(changed)
}

async fn update(
    conn: &mut impl On<Mysql>,
    set: impl QueryFragment<Mysql> + QueryId + Send,
    slot: &Slot,
    expiry: Expiry,
) -> Result<usize, MysqlError> {
    let in_transaction = depth::depth(conn.status()).is_ok_and(|depth| depth > 0);
    let key = Key::of(slot, in_transaction);
    match expiry {
        Expiry::Unexpired => execute::execute(conn, UpdateSlot(set, Unexpired(key))).await,
        Expiry::IncludeExpired => execute::execute(conn, UpdateSlot(set, key)).await,
    }
}

async fn force_release(conn: &mut impl On<Mysql>, name: Named<'_>) -> Result<usize, Error> {
    let held = || slot_queries::held_numbers(name);
    let held: Vec<(i32, bool)> = autocommit_retry!(conn, execute::load(conn, held()).await)?;
    let mut released = 0;
    for (number, unexpired) in held {
        let release = || slot_queries::force_release(name, number);
        let freed = autocommit_retry!(conn, execute::execute(conn, release()).await)?;
        released += if unexpired { freed } else { 0 };
    }
    Ok(released)
}

async fn try_hold(
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<AttemptOutcome, Error> {
    let found = match find_free_nowait(conn, semaphore, context).await? {
        Ok(found) => found,
        Err(attempt) => return Ok(attempt),
    };
    writers::ensure_one(conn, found.writer_unknown).await?;
    if found.free.is_empty() {
        return Ok(found.refusal(semaphore, context));
    }
    let Some((number, fence, leased)) = lock_one(conn, semaphore, context, &found).await? else {
        return Ok(found.refusal(semaphore, context));
    };
    if leased > 0 {
        // The holder of an expired lease on the slot must not renew it after another has held the slot.
        let clear = slot_sql::clear_token(Named(semaphore.name()), number);
        execute::execute(conn, clear).await?;
    }
    Ok(AttemptOutcome::Granted(Grant { number, fence }))
}

pub(crate) async fn try_once(
    conn: &mut impl On<Mysql>,
    request: &LeaseRequest<'_>,
    context: &AttemptContext,
) -> Result<AttemptOutcome, Error> {
    let found = match find_free_nowait(conn, request.semaphore, context).await? {
        Ok(found) => found,
        Err(attempt) => return Ok(attempt),
    };
    // The first search of an acquisition finds out.
    if found.no_autocommit && !context.in_transaction {
        return Err(session::commits_nothing(conn).await);
    }
    if found.free.is_empty() {
        return Ok(found.refusal(request.semaphore, context));
    }
    let lease_on = |number, last| NewLease::new(request, &found, number, last);
    // The result of the search may be outdated: the update requires the same fence. One slot only: where sessions compete,
    // the others that look free are locked as well, and each claim that fails costs as much as one that succeeds.
    if let Some(&(number, last)) = found.free.first()
        && let Some(granted) = lease_on(number, last).claim(conn).await?
    {
        return Ok(AttemptOutcome::Granted(granted));
    }
    if let Some((number, last, _)) = lock_another(conn, request.semaphore, context).await? {
        let lease = lease_on(number, last);
        let granted = match lease.claim(conn).await? {
            None => lease.claim_unless_blocked(conn).await?,
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
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
) -> Result<(), Error> {
    let resource = || semaphore.slot_resource();
    match Unknown::of(active_isolation::entered(conn), resource)? {
        Some(unknown) => unknown.ask(conn, resource).await,
        None => Ok(()),
    }
}
