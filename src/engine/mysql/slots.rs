//! Slots of semaphores on MySQL and MariaDB.
//!
//! Every statement that changes a slot selects its row by the whole key, so that no session waits for two rows, and InnoDB locks that
//! row and no gap, except at REPEATABLE READ if the row is missing. A dropped future sends a statement that knows the token only, and
//! ends the session afterwards.

use std::time::Duration;

use async_trait::async_trait;
use diesel::mysql::Mysql;
use diesel::prelude::QueryDsl;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use uuid::Uuid;

use crate::engine::dialect::Dialect;
use crate::engine::ending::autocommit_retry;
use crate::engine::literal;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::{
    MysqlError, PermitBigSelects, RestoreBigSelects, assert_read, unless_ended,
};
use crate::engine::mysql::galera::{Cluster, unless_galera};
use crate::engine::mysql::slot_batches::parts;
use crate::engine::mysql::slot_search::MAX_SLOW_SEARCHES;
use crate::engine::mysql::sql::{
    AS_AN_UPDATE, BEGIN, EVERY_ROW, IN_TRANSACTION, LIMIT_HINT, LONG_LIMIT_HINT,
    UNLESS_TABLE_LOCKED, WRITER_UNKNOWN,
};
use crate::engine::slot_queries::{self, Key, UpdateSlot};
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Change, Expiry, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, RegisteredPermits, ReleaseKind, SemaphoreBackend, SemaphoreRow, all_slots,
};
use crate::engine::tables::{Named, diesel_locks_slots as slots, in_range};
use crate::error::classify::ErrorClass;
use crate::link::raw_sql::statement;
use crate::link::{Link, depth};
use crate::rt::caught;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::slot::{FirstSlot, SlotTimes};
use crate::{Error, Semaphore, Slot};

/// How long a grant that another node of a cluster has committed may take to arrive at this one.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(1);

/// A digest that identifies the server and the database.
const DATABASE: &str = "SHA2(CONCAT_WS('/', /*!80000 @@server_uuid, */ @@hostname, @@port, @@socket, @@datadir, \
     @@pid_file, DATABASE()), 256)";

statement! {
    Mysql;
    /// Reads the first 120 bits of [`DATABASE`] as two numbers.
    Database {} -> (BigInt, BigInt),
    |self| {
        "SELECT CAST(CONV(SUBSTR("; {DATABASE}; ", 1, 15), 16, 10) AS SIGNED), CAST(CONV(SUBSTR("; {DATABASE};
        ", 16, 15), 16, 10) AS SIGNED)";
    }

    /// The held slots. Fails unless it ends in time: another session may have the table locked.
    HeldNowait<'a> { name: &'a [u8] } -> (Integer, BigInt, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        "number, fence, expires_us - "; {Mysql::NOW};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND expires_us > "; {Mysql::NOW};
        " ORDER BY number"; {EVERY_ROW};
    }

    /// The registered number of permits. Fails as [`HeldNowait`] does.
    ReadPermits<'a> { name: &'a [u8] } -> Integer,
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        "permits FROM diesel_locks_semaphores WHERE name = ", Binary = self.name;
    }

    /// Reads the semaphore's first slot. Fails as [`HeldNowait`] does, or after a longer time.
    ReadFirstSlot<'a> { name: &'a [u8], hint: &'static str } -> (BigInt, BigInt, BigInt, BigInt), by text,
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {self.hint};
        "fence, acquired_us, hold_until_us, expires_us - "; {Mysql::NOW};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number = 1";
    }

    /// Locks the slot against all changes if its token matches; returns whether a transaction is open, and
    /// [`WRITER_UNKNOWN`]. Raw, because MariaDB has no FOR SHARE. Refused where the slot can't be changed: a read-only server does not
    /// refuse a shared lock.
    Pin<'a> { key: Key<'a> } -> (Nullable<BigInt>, BigInt),
    |self| {
        "SELECT "; {AS_AN_UPDATE}; {IN_TRANSACTION}; ", "; {WRITER_UNKNOWN};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY)"; [&self.key]; " LOCK IN SHARE MODE"
    }
}

#[async_trait]
impl<C: Link<Db = Mysql>> SemaphoreBackend for MysqlEngine<'_, C> {
    async fn database_id(&mut self) -> Result<Option<String>, Error> {
        let (first, second): (i64, i64) = self.get_result(Database {}).await?;
        Ok(Some(format!("mysql {first} {second}")))
    }

    async fn registered_permits(&mut self, name: &str) -> Result<RegisteredPermits, Error> {
        let name = name.as_bytes();
        // On MySQL the limit also ends a statement that is slow, as on a busy server.
        for _ in 0..MAX_SLOW_SEARCHES {
            let read = || ReadPermits { name };
            let permits = autocommit_retry!(self.0, unless_ended(self.get_optional(read()).await))?;
            if let Some(permits) = permits {
                return Ok(permits.map_or(RegisteredPermits::Missing, RegisteredPermits::Number));
            }
        }
        Ok(RegisteredPermits::TableLocked)
    }

    async fn try_lease(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            self.ensure_read_committed(|| request.semaphore.slot_resource())
                .await?;
            return self.try_once(request, context).await;
        }
        loop {
            // On Galera each statement may conflict with one on another node.
            match self.try_once(request, context).await {
                Err(error) if error.is_retryable() => {}
                result => return result,
            }
        }
    }

    async fn begin_hold(&mut self) -> Result<bool, Error> {
        self.begin_by(&BEGIN).await?;
        Ok(true)
    }

    async fn try_hold(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            self.ensure_read_committed(|| semaphore.slot_resource())
                .await?;
        }
        unless_galera!(self, hold_on_server, hold_on_galera, semaphore, context)
    }

    async fn find_candidates(&mut self, semaphore: &Semaphore) -> Result<AttemptOutcome, Error> {
        if self.is_table_locked().await? {
            return Ok(AttemptOutcome::TableLocked);
        }
        let found = unless_ended(self.candidates(semaphore).await)?;
        Ok(found.unwrap_or(AttemptOutcome::TableLocked))
    }

    async fn resize_in_progress(&mut self) -> Result<bool, Error> {
        match self.floor_is_locked().await {
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
            self.begin_by(&BEGIN).await?;
            let added = match self.add_slots(semaphore, block).await {
                // MariaDB, where only the wait for a locked table fails so. On MySQL a time limit ends it, and also
                // the search of a busy server.
                Err(failure) if failure.class == ErrorClass::LockTimeout && !block => {
                    Ok(BatchOutcome::TableLocked)
                }
                Err(failure) if failure.is_end_of_wait() && !block => Ok(BatchOutcome::Contended),
                added => added,
            };
            if let Some(added) = self.end_or_restart(added).await? {
                return Ok(added);
            }
        }
    }

    async fn create_fence_floor(&mut self) -> Result<(), Error> {
        let last = autocommit_retry!(self.0, self.largest_fence().await)?;
        let insert = || slot_queries::insert_fence_floor(last);
        autocommit_retry!(self.0, self.execute(insert()).await)?;
        Ok(())
    }

    async fn raise_fence_floor(&mut self, by: Duration) -> Result<RaiseOutcome, Error> {
        loop {
            self.begin_by(&BEGIN).await?;
            let raised = self.raise(by).await;
            if let Some(raised) = self.end_or_restart(raised).await? {
                return Ok(raised);
            }
        }
    }

    async fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error> {
        loop {
            self.begin_by(&BEGIN).await?;
            let stored = self.store_permits(semaphore).await;
            if self.end_or_restart(stored).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// If the first statement for a slot has found no lease, sends it again if another node of a cluster has granted the lease and
    /// this one had not received the grant.
    async fn change(
        &mut self,
        slot: &Slot,
        change: Change<'_>,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        let mut changed = autocommit_retry!(self.0, self.change_once(slot, change, expiry).await)?;
        let unexpired = expiry == Expiry::Unexpired;
        if changed == 0 && (unexpired || change == Change::Release(ReleaseKind::Unused)) {
            let lease = [RenewalRequest::new(slot, 0)];
            let found = self.await_grants(&lease, ARRIVAL).await?;
            if found.is_unexpired || (found.is_owned && !unexpired) {
                changed = autocommit_retry!(self.0, self.change_once(slot, change, expiry).await)?;
            }
        }
        // Asks for the reason: a statement with the condition `Dialect::COMMITTED_AT_ONCE` changes nothing that would not be
        // committed. Not after the first of two statements, whose lease may have expired.
        if changed == 0 && !unexpired {
            self.ensure_commits().await?;
        }
        Ok(changed)
    }

    fn release_unused_statement(&self, semaphore: &str, tokens: &[Uuid]) -> String {
        let mut name = String::new();
        literal::push_for_mysql(&mut name, semaphore);
        let release = slot_queries::release_unused::<Mysql>(&name, tokens, ["x'", "'"]);
        // Without the slot's number the statement reads all slots of the semaphore. At this level it does not wait for
        // those of other tokens, which others may have locked. The session ends afterwards. The level of one transaction could
        // not be set while another one is open.
        format!("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; {release}")
    }

    async fn pin(&mut self, slot: &Slot) -> Result<bool, Error> {
        unless_galera!(self, pin_on_server, pin_on_galera, slot)
    }

    async fn list_held_nowait(&mut self, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        let name = name.as_bytes();
        Ok(unless_ended(self.load(HeldNowait { name }).await)?)
    }

    async fn first_slot_nowait(&mut self, name: &str) -> Result<FirstSlot, Error> {
        let name = name.as_bytes();
        let first = |hint| ReadFirstSlot { name, hint };
        let mut row = unless_ended(self.get_optional(first(LIMIT_HINT)).await)?;
        // On MySQL the limit also ends a statement that is slow, as on a busy server.
        if row.is_none() && !self.is_table_locked().await? {
            row = unless_ended(self.get_optional(first(LONG_LIMIT_HINT)).await)?;
        }
        let row: Option<Option<SlotTimes>> = row;
        Ok(row.map_or(FirstSlot::TableLocked, FirstSlot::from))
    }

    async fn list_held(&mut self, request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error> {
        let query = || slot_queries::list_held(request.limit).into_boxed::<Mysql>();
        let query = || in_range(query(), slots::name, &request.names);
        let rows: Vec<(String, HeldRow)> = self.load_list(query).await?;
        assert_read(rows.iter().map(|(name, _)| name.as_bytes()))?;
        assert_read(rows.iter().filter_map(|(_, row)| row.token.as_deref()))?;
        // A broken client library does not lose a name of one byte, a slot may have no token, and a holder may be empty.
        let mut holders = rows.iter().filter_map(|(_, row)| row.holder.as_deref());
        if holders.any(str::is_empty) {
            self.check_client_library().await?;
        }
        Ok(rows)
    }

    async fn list_semaphores(&mut self, request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error> {
        let query = || slot_queries::list_semaphores(request.limit).into_boxed::<Mysql>();
        let query = || in_range(query(), slots::name, &request.names);
        let rows: Vec<SemaphoreRow> = self.load_list(query).await?;
        assert_read(rows.iter().map(|row| row.name.as_bytes()))?;
        Ok(rows)
    }

    async fn now_us(&mut self) -> Result<i64, Error> {
        autocommit_retry!(self.0, self.get_result(slot_queries::now()).await)
    }

    async fn release_all(&mut self, name: &str) -> Result<usize, Error> {
        if depth::depth(self.0.status())? > 0 {
            self.ensure_read_committed(|| all_slots(name)).await?;
        } else {
            self.ensure_commits().await?;
        }
        let released = caught(async {
            self.execute(PermitBigSelects {}).await?;
            self.force_release(Named(name)).await
        });
        let released = released.await;
        self.restore_by(&RestoreBigSelects {}, released).await
    }

    #[cfg(feature = "testing")]
    async fn expire(&mut self, name: &str, by_us: i64) -> Result<usize, Error> {
        self.ensure_commits().await?;
        let expire = || slot_queries::expire(Named(name), by_us);
        autocommit_retry!(self.0, self.execute(expire()).await)
    }

    async fn purge_unused_slots(&mut self, age_us: i64) -> Result<usize, Error> {
        // Sessions on other nodes can add slots at the same time: on these products both might commit.
        if let Some(cluster @ (Cluster::TiDb | Cluster::Vitess)) = self.find_cluster().await? {
            return Err(cluster.refused());
        }
        let purged = caught(async {
            self.execute(PermitBigSelects {}).await?;
            self.purge(age_us).await
        });
        let purged = purged.await;
        self.restore_by(&RestoreBigSelects {}, purged).await
    }

    async fn release_batch(
        &mut self,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut locked = Vec::new();
        for leases in parts(leases) {
            locked.extend(self.release_part(leases, kind).await?);
        }
        Ok(locked)
    }

    async fn renew_batch(
        &mut self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let mut renewed = Vec::new();
        for leases in parts(leases) {
            renewed.extend(self.renew_part(leases).await?);
        }
        Ok(renewed)
    }
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    async fn pin_on_server(&mut self, slot: &Slot) -> Result<bool, Error> {
        let key = Key::of(slot, true);
        let pin: Option<(_, i64)> = self.get_optional(Pin { key }).await?;
        let Some((in_transaction, unknown)) = pin else {
            // A node of Galera may not have received the grant.
            self.ensure_one_writer(true).await?;
            return Ok(false);
        };
        // After the statement, whose lock lasts only inside a transaction.
        self.assert_in_transaction(in_transaction).await?;
        self.ensure_one_writer(unknown == 1).await?;
        Ok(true)
    }

    async fn change_once(
        &mut self,
        slot: &Slot,
        change: Change<'_>,
        expiry: Expiry,
    ) -> Result<usize, MysqlError> {
        let in_transaction = depth::depth(self.0.status()).is_ok_and(|depth| depth > 0);
        self.execute(UpdateSlot {
            change,
            key: Key::of(slot, in_transaction),
            expiry,
            and: "",
        })
        .await
    }

    async fn force_release(&mut self, name: Named<'_>) -> Result<usize, Error> {
        let held = || slot_queries::held_numbers(name);
        let held: Vec<(i32, bool)> = autocommit_retry!(self.0, self.load(held()).await)?;
        let mut released = 0;
        for (number, unexpired) in held {
            let release = || slot_queries::force_release(name, number);
            let freed = autocommit_retry!(self.0, self.execute(release()).await)?;
            released += if unexpired { freed } else { 0 };
        }
        Ok(released)
    }
}
