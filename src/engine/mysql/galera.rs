//! Clusters in which several nodes take writes, where a row lock excludes the sessions of one node only. Most are detected (by
//! `find_cluster`) and refused. On Galera (MariaDB) locks work, though a conflict with another node ends a transaction only at its COMMIT.
//!
//! By streaming replication the changes of a statement reach all nodes when it ends. Each node then keeps their rows locked
//! until the transaction ends. So a lock is a change of its row before the closure runs: see "Several writers" in DESIGN.md.

use std::fmt::Write;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::thread;

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer};
use uuid::Uuid;

use crate::engine::ending::{self, START_SAVEPOINT, autocommit_retry};
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::{GALERA_FOUND, MysqlError};
use crate::engine::mysql::object_lock::{MIN_LIMIT_MS, pause};
use crate::engine::mysql::object_lock_sql::{LOCK_BATCH, literal_of};
use crate::engine::mysql::session::untracked;
use crate::engine::mysql::slots::ARRIVAL;
use crate::engine::mysql::sql::{ANY_SIZE, ANY_SIZE_HINT, BEGIN, ROLLBACK};
use crate::engine::sequence_queries::DrawRequest;
use crate::engine::slot_queries::Key;
use crate::engine::slots::{AttemptContext, AttemptOutcome, LeaseRequest};
use crate::error::classify::ErrorClass;
use crate::link::raw_sql::statement;
use crate::link::{Link, depth};
use crate::rt::caught;
use crate::values::lease::RenewalRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, ObjectId, Semaphore, Slot, Wait};

/// What the session knows: there is one writer, or the server is a node of Galera. 0 or nothing: not asked yet.
pub(crate) const ONE_WRITER: i64 = 1;
const GALERA: i64 = 2;

statement! {
    Mysql;
    Known {} -> BigInt,
    |self| { "SELECT CAST(COALESCE(@diesel_locks_one_writer, 0) AS SIGNED)" }

    Remember { known: i64 } -> Integer,
    |self| { "SET @diesel_locks_one_writer = ", BigInt = &self.known }

    /// The products that are recognised by `VERSION()`: 3 or 4 as in `find_cluster`, otherwise 0.
    Product {} -> BigInt,
    |self| {
        "SELECT CASE WHEN VERSION() LIKE '%TiDB%' THEN 3 WHEN VERSION() LIKE '%Vitess%' THEN 4 ELSE 0 END"
    }

    /// The kind of cluster, 1, 2 or 5 as in `find_cluster`, otherwise 0. A number, because a broken client library loses texts.
    /// Without the literal of an empty text, which is NULL with MariaDB's mode `EMPTY_STRING_IS_NULL`.
    Replication {} -> BigInt,
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT};
        "CASE \
         WHEN SUM(variable_name = 'wsrep_on' AND variable_value = 'ON') > 0 \
         AND SUM(variable_name = 'wsrep_provider' AND variable_value <> 'none' AND LENGTH(variable_value) > 0) > 0 \
         THEN CASE WHEN SUM(variable_name = 'pxc_strict_mode') = 0 THEN 1 \
         WHEN SUM(variable_name = 'pxc_strict_mode' AND variable_value = 'MASTER') = 0 THEN 5 ELSE 0 END \
         WHEN SUM(variable_name = 'group_replication_single_primary_mode' AND variable_value = 'OFF') > 0 \
         THEN 2 ELSE 0 END \
         FROM /*!80000 performance_schema.global_variables */\
         /*M!100100 information_schema.global_variables */ \
         WHERE variable_name IN ('wsrep_on', 'wsrep_provider', 'pxc_strict_mode', \
         'group_replication_single_primary_mode')";
    }

    /// Changes the slot as little as possible, if its token matches.
    StreamPin<'a> { key: Key<'a> } -> Integer,
    |self| { "UPDATE diesel_locks_slots FORCE INDEX (PRIMARY) SET expires_us = expires_us + 1"; [&self.key] }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cluster {
    Galera,
    PerconaXtraDb,
    GroupReplication,
    TiDb,
    Vitess,
}

impl Cluster {
    pub(crate) fn refused(self) -> Error {
        let (cluster, hint) = match self {
            Self::Galera => (
                "Galera",
                "begin the transaction with run_transaction or a method of this crate, or send all writes to one node and \
                 call diesel_locks::assume_single_writer on each connection",
            ),
            Self::PerconaXtraDb => (
                "Percona XtraDB Cluster",
                "send all writes to one node and call diesel_locks::assume_single_writer on each connection",
            ),
            Self::GroupReplication => (
                "Group Replication with several primaries",
                "switch it to one primary, or send all writes to one and call diesel_locks::assume_single_writer on \
                 each connection, or use leases (try_acquire_slot), which hold on all members",
            ),
            Self::TiDb => ("TiDB", "use MySQL or MariaDB"),
            Self::Vitess => ("Vitess", "use MySQL or MariaDB"),
        };
        Error::SeveralWriters { cluster, hint }
    }
}

/// Calls the first method, and returns its result from the calling function. On Galera, where it is refused, calls the second.
macro_rules! unless_galera {
    ($engine:expr, $on_server:ident, $on_galera:ident, $($argument:expr),+) => {{
        if !$engine.is_galera().await? {
            let outcome = $engine.$on_server($($argument),+).await;
            if !matches!(&outcome, Err(crate::Error::SeveralWriters { cluster: "Galera", .. })) {
                return outcome;
            }
        }
        $engine.$on_galera($($argument),+).await
    }};
}
pub(crate) use unless_galera;

/// From now on each changed row is streamed, whatever the unit of fragments, which can't be changed in a streamed transaction.
/// The session takes a row that it changes for locked on all nodes, as on one server.
const STREAM: &str = "SET @diesel_locks_fragment_size = COALESCE(@diesel_locks_fragment_size, @@SESSION.wsrep_trx_fragment_size), \
     SESSION wsrep_trx_fragment_size = 1, @diesel_locks_one_writer = 1";

/// Ends [`STREAM`], in a message of its own: in the same message as a change it may come before the change is streamed.
const RESTORE: &str = "SET SESSION wsrep_trx_fragment_size = \
     CAST(COALESCE(@diesel_locks_fragment_size, @@SESSION.wsrep_trx_fragment_size) AS UNSIGNED), \
     @diesel_locks_fragment_size = NULL, @diesel_locks_one_writer = 2";

/// [`RESTORE`] in a transaction that has just begun. RELEASE fails if another node has ended it, of which the client library
/// may have lost the error.
static RESTORE_BEGUN: LazyLock<String> = LazyLock::new(|| {
    format!("{RESTORE}; RELEASE SAVEPOINT {START_SAVEPOINT}; SAVEPOINT {START_SAVEPOINT}")
});

/// The number of conflicts with other nodes after which a request that does not wait counts the object as locked.
pub(crate) const MAX_CONFLICTS: u32 = 5;

const HOUR_US: i64 = 3_600_000_000;

/// Changes the row, or inserts it. Waits as the request does. A shared lock is exclusive: a lock that changes no row excludes no
/// other node.
fn lock_row(id: &ObjectId, request: &Request) -> String {
    let limit = match request.remaining_millis() {
        None => String::new(),
        Some(0) => {
            "SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0 FOR ".to_owned()
        }
        Some(millis) => {
            let millis = millis.max(MIN_LIMIT_MS);
            let (seconds, millis) = (millis / 1000, millis % 1000);
            format!("SET STATEMENT max_statement_time = {seconds}.{millis:03} FOR ")
        }
    };
    let kept = if request.keeps(id) { "TRUE" } else { "FALSE" };
    let id = literal_of(id);
    // An UPDATE that changes nothing is not replicated.
    format!(
        "{limit}INSERT INTO diesel_locks_objects (id, kept) VALUES ({id}, {kept}) \
         ON DUPLICATE KEY UPDATE kept = IF(kept = 1, 2, 1)"
    )
}

/// The first ids of the request whose rows are to be deleted.
fn transient(request: &Request, acquired: usize) -> &[ObjectId] {
    if request.is_kept() {
        &[]
    } else {
        &request.ids[..acquired]
    }
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    /// Returns the cluster to which the server belongs, unless the session knows that there is one writer.
    pub(crate) async fn find_cluster(&mut self) -> Result<Option<Cluster>, Error> {
        match self.get_result(Known {}).await? {
            ONE_WRITER => return Ok(None),
            GALERA => return Ok(Some(Cluster::Galera)),
            _ => {}
        }
        let product: i64 = self.get_result(Product {}).await?;
        let found = match product {
            0 => self.get_result(Replication {}).await?,
            product => product,
        };
        let cluster = match found {
            1 => {
                self.remember(GALERA).await?;
                GALERA_FOUND.store(true, Ordering::Relaxed);
                Cluster::Galera
            }
            2 => Cluster::GroupReplication,
            3 => Cluster::TiDb,
            4 => Cluster::Vitess,
            5 => Cluster::PerconaXtraDb,
            _ => {
                self.remember(ONE_WRITER).await?;
                return Ok(None);
            }
        };
        Ok(Some(cluster))
    }

    pub(crate) async fn remember(&mut self, known: i64) -> Result<(), Error> {
        self.execute(Remember { known }).await?;
        Ok(())
    }

    /// Fails with [`Error::SeveralWriters`] if several nodes take writes, so that no row lock excludes others. `unknown` is the
    /// [`WRITER_UNKNOWN`](super::sql::WRITER_UNKNOWN) that a statement has returned.
    pub(crate) async fn ensure_one_writer(&mut self, unknown: bool) -> Result<(), Error> {
        if unknown && let Some(cluster) = self.find_cluster().await? {
            return Err(cluster.refused());
        }
        Ok(())
    }

    /// Whether the session is on Galera. Sends nothing in a process that has not found a node of Galera.
    pub(crate) async fn is_galera(&mut self) -> Result<bool, Error> {
        if !GALERA_FOUND.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // Galera may answer with the end of the transaction before.
        Ok(autocommit_retry!(self.0, self.find_cluster().await)? == Some(Cluster::Galera))
    }

    /// Fails in a transaction that this crate has not begun: the client library may not report that another node's transaction
    /// has ended it, so that what follows, and the number or the lock, would be committed apart.
    fn assert_ours(&mut self) -> Result<(), Error> {
        match depth::started(self.0.status()) {
            Some(_) => Ok(()),
            None => Err(Cluster::Galera.refused()),
        }
    }

    pub(crate) async fn begin_on_galera(
        &mut self,
        request: &Request,
        _: bool,
    ) -> Result<Option<LockOutcome>, Error> {
        let mut conflicts = 0;
        loop {
            let Err(failure) = self.begin_and_lock(request).await? else {
                return Ok(Some(LockOutcome::Acquired));
            };
            // Another node was first, and its lock may be gone by now; or a wait has ended.
            let waited = failure.is_end_of_wait();
            if failure.is_retryable() {
                conflicts += 1;
            } else if !waited {
                return Err(failure.into());
            }
            let is_held = waited || conflicts > MAX_CONFLICTS;
            match request.wait {
                Wait::No if is_held => return Ok(Some(LockOutcome::Unavailable)),
                Wait::AtMost(_) if is_held && request.is_expired() => {
                    return Err(request.timed_out(Some(failure.error)));
                }
                // `max_statement_time` of the session.
                Wait::Forever if failure.class == ErrorClass::StatementTimeout => {
                    return Err(request.timed_out(Some(failure.error)));
                }
                _ => {}
            }
            // Nothing is held: a deadlock with another node, which the server does not see, ends here.
            pause(request).await;
        }
    }

    /// Begins a transaction and acquires the locks in it. After a failure of the second kind none is open.
    async fn begin_and_lock(&mut self, request: &Request) -> Result<Result<(), MysqlError>, Error> {
        let mut message = format!("{}; {STREAM}", *BEGIN);
        let (first, others) = request.ids.split_at(request.ids.len().min(1));
        for id in first {
            let _ = write!(message, "; {}", lock_row(id, request));
        }
        let locked = caught(async {
            if let Err(error) = self.0.begin(&message).await {
                return Ok(Err(self.with_errno(untracked(error)?).await));
            }
            for id in others {
                if let Err(failure) = self.send(&lock_row(id, request)).await {
                    return Ok(Err(failure));
                }
            }
            let ids = transient(request, request.ids.len());
            Ok::<_, Error>(self.send_and_delete(&RESTORE_BEGUN, ids).await)
        });
        let locked = locked.await;
        let Err(failure) = depth::break_if_panicked(self.0.status(), locked)? else {
            return Ok(Ok(()));
        };
        let undo = format!("{}; {RESTORE}", *ROLLBACK);
        self.restore_by_text(&undo).await?;
        if depth::counted(self.0.status()).is_ok() {
            depth::mark_closed(self.0.status());
        }
        Ok(Err(failure))
    }

    async fn send(&mut self, sql: &str) -> Result<(), MysqlError> {
        let Err(error) = self.0.batch(sql).await else {
            return Ok(());
        };
        let mut failure = self.with_errno(error).await;
        if failure.error.to_string().contains(START_SAVEPOINT) {
            failure.class = ErrorClass::Deadlock;
        }
        Err(failure)
    }

    /// Sends `before`, and deletes the rows of transient locks: they stay locked on all nodes until the transaction ends. In
    /// messages of at most [`LOCK_BATCH`] ids.
    async fn send_and_delete(&mut self, before: &str, ids: &[ObjectId]) -> Result<(), MysqlError> {
        let mut message = before.to_owned();
        for (position, id) in ids.iter().enumerate() {
            if position > 0 && position.is_multiple_of(LOCK_BATCH) {
                self.send(&message).await?;
                message = String::from("DO 0");
            }
            let id = literal_of(id);
            let _ = write!(
                message,
                "; DELETE FROM diesel_locks_objects WHERE id = {id} AND NOT kept"
            );
        }
        self.send(&message).await
    }

    pub(crate) async fn lock_on_galera(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        self.assert_ours()?;
        self.ensure_read_committed(|| request.resource()).await?;
        let mut acquired = 0;
        let locked = caught(async {
            self.send(STREAM).await?;
            for id in request.ids.iter() {
                self.send(&lock_row(id, request)).await?;
                acquired += 1;
            }
            Ok(())
        });
        let locked = locked.await;
        let locked: Result<(), MysqlError> = self.restored(RESTORE, locked).await;
        // Also those of a request that was refused, after which the transaction may be committed.
        let ids = transient(request, acquired);
        if !ids.is_empty() && !locked.as_ref().is_err_and(MysqlError::is_retryable) {
            let deleted = self.send_and_delete("DO 0", ids).await;
            deleted.map_err(|failure| request.partly_locked(acquired, failure.into()))?;
        }
        let Err(failure) = locked else {
            return Ok(LockOutcome::Acquired);
        };
        if !failure.is_end_of_wait() {
            return Err(request.partly_locked(acquired, failure.into()));
        }
        if failure.class == ErrorClass::LockTimeout && self.timeout_rolls_back().await? {
            return Err(ending::ended(Some(failure.error)));
        }
        let error = match request.wait {
            Wait::No if acquired == 0 => return Ok(LockOutcome::Unavailable),
            Wait::No => request.unavailable(),
            Wait::Forever | Wait::AtMost(_) => request.timed_out(Some(failure.error)),
        };
        Err(request.partly_locked(acquired, error))
    }

    /// Sends `restore`, which begins with [`RESTORE`], also after an error or a panic.
    async fn restored<T, E: From<MysqlError>>(
        &mut self,
        restore: &str,
        result: thread::Result<Result<T, E>>,
    ) -> Result<T, E> {
        let succeeded = matches!(result, Ok(Ok(_)));
        let sql = if succeeded { restore } else { RESTORE };
        let first = caught(self.send(sql)).await;
        let first = depth::break_if_panicked(self.0.status(), first);
        if first.is_err() {
            let restored = self.restore_by_text(RESTORE).await;
            restored.map_err(MysqlError::of)?;
        }
        let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
        match first {
            // The end of the transaction, which the server reports once.
            Err(failure) if failure.is_retryable() => Err(failure.into()),
            // Any other error was that of RESTORE, which was sent again.
            _ => Ok(value),
        }
    }

    /// Holds the slot by a lease that has ended already, also by the clocks of other nodes, and whose row is locked.
    pub(crate) async fn hold_on_galera(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if context.in_transaction {
            self.assert_ours()?;
        }
        let request = LeaseRequest {
            semaphore,
            token: Uuid::new_v4().into_bytes(),
            holder: "",
            lease_us: -HOUR_US,
            min_hold_us: 0,
        };
        let inside = AttemptContext {
            in_transaction: true,
            ..context.clone()
        };
        let held = caught(async {
            self.send(STREAM).await?;
            self.try_once(&request, &inside).await
        });
        let held = held.await;
        if context.in_transaction {
            return self.restored(RESTORE, held).await;
        }
        match self.restored(&RESTORE_BEGUN, held).await {
            // Another node has changed the slot first. The transaction has done nothing else.
            Err(error) if error.is_retryable() => Ok(AttemptOutcome::Locked),
            held => held,
        }
    }

    pub(crate) async fn pin_on_galera(&mut self, slot: &Slot) -> Result<bool, Error> {
        self.assert_ours()?;
        let pinned = caught(async {
            self.send(STREAM).await?;
            let pin = || {
                let key = Key::of(slot, true);
                StreamPin { key }
            };
            let pinned = self.execute(pin()).await?;
            let lease = [RenewalRequest::new(slot, 0)];
            if pinned == 0 && self.await_grants(&lease, ARRIVAL).await?.is_owned {
                return Ok::<_, Error>(self.execute(pin()).await?);
            }
            Ok(pinned)
        });
        let pinned = pinned.await;
        Ok(self.restored(RESTORE, pinned).await? == 1)
    }

    pub(crate) async fn draw_on_galera(
        &mut self,
        draw: &DrawRequest<'_>,
    ) -> Result<Option<i64>, Error> {
        self.assert_ours()?;
        let drawn = caught(async {
            self.send(STREAM).await?;
            self.draw_on_server(draw).await
        });
        let drawn = drawn.await;
        self.restored(RESTORE, drawn).await
    }
}
