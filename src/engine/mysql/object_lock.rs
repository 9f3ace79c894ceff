//! Acquires object locks. Free objects are locked by one message of `object_lock_sql`; otherwise row by row here: locks the row
//! of an id, or inserts it under the named lock under which one session at a time does so. On Galera see `galera`.
//! Time limits: `row` here, `execute::get_within`, and `object_lock_sql` for the message that begins a transaction.

mod marks;
mod named_lock;

use std::mem;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use diesel::mysql::Mysql;

use crate::engine::ending;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::MysqlError;
use crate::engine::mysql::galera::MAX_CONFLICTS;
use crate::engine::mysql::object_lock_sql::{self as sql, LOCK_BATCH, Probe};
use crate::engine::mysql::session::untracked;
use crate::engine::mysql::sql::{BEGIN, Session};
use crate::engine::tables::Named;
use crate::error::classify::{ErrorClass, classify};
use crate::link::{Link, depth};
use crate::rt::{self, backoff, caught};
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, ObjectId, Wait};

/// The shortest time limit of a statement that waits, in milliseconds. Afterwards the request's time is up, so only one
/// id of a request gets it. On MariaDB the limit also applies to the statements that read the error's number.
pub(crate) const MIN_LIMIT_MS: i32 = 10;

/// The time limit, in milliseconds, of a statement that does not wait for locks, when the request's time is up: on
/// MySQL it waits while another session changes users or privileges. Far more than it takes on a busy server.
const GRACE_MS: i32 = 200;

/// From 1000 on MariaDB makes a list a derived table (`in_predicate_conversion_threshold`), and may read the rows by another plan.
const PROBE_BATCH: usize = 900;

/// The pause before a statement is sent again that the server has ended without waiting: MariaDB with
/// `innodb_lock_wait_timeout = 0` or `lock_wait_timeout = 0`. Half of it at least.
const PAUSE: Duration = Duration::from_millis(20);

/// The shortest limit of the server that is more than none is 1 s. A statement that ended earlier has not waited.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);

enum AcquireError {
    Unavailable {
        /// A statement timed out at once: MariaDB's answer to NOWAIT. It may have ended the transaction.
        timed_out: bool,
    },
    /// A kept row is missing: restart the transaction and take the named lock first.
    NoRow {
        is_shared: bool,
    },
    /// A limit of the server (`innodb_lock_wait_timeout`) ended a wait, and the transaction holds something, or has ended with it.
    LimitOfServer(Error),
    Failed(Error),
}

/// Without `From`: in an error about the type of an application's error (E0283) the compiler would list this type.
fn or_failed<T>(result: Result<T, impl Into<Error>>) -> Result<T, AcquireError> {
    result.map_err(|error| AcquireError::Failed(error.into()))
}

pub(crate) async fn pause(request: &Request) {
    let pause = backoff::jittered(PAUSE);
    rt::pause(request.remaining().unwrap_or(pause).min(pause)).await;
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn begin_on_server(
        &mut self,
        request: &Request,
        creates_shared: bool,
    ) -> Result<Option<LockOutcome>, Error> {
        if is_batched(request)
            && request.ids.len() <= LOCK_BATCH
            && let Some(outcome) = self.try_begin_fast(request).await?
        {
            return Ok(Some(outcome));
        }
        // A kept row usually exists, and locking it takes one round trip. If it was missing, take the named lock first.
        let mut creates_rows = creates_shared;
        let mut conflicts = 0;
        loop {
            if creates_shared {
                self.begin_by(&BEGIN).await?;
            } else if !self.begin_unless_wanted(request).await? {
                match request.wait {
                    Wait::No => return Ok(Some(LockOutcome::Unavailable)),
                    Wait::AtMost(_) if request.is_expired() => {
                        return Err(request.timed_out(None));
                    }
                    _ => pause(request).await,
                }
                continue;
            }
            let mut acquisition = Acquisition::new(self, request);
            acquisition.is_started = true;
            acquisition.creates_rows = creates_rows;
            let Err(refusal) = acquisition.acquire().await else {
                return Ok(Some(LockOutcome::Acquired));
            };
            ending::roll_back(self).await;
            match refusal {
                AcquireError::Unavailable { .. } => return Ok(Some(LockOutcome::Unavailable)),
                AcquireError::NoRow { is_shared: true } => return Ok(None),
                AcquireError::NoRow { is_shared: false } => creates_rows = true,
                // It no longer holds the objects that it had acquired.
                AcquireError::LimitOfServer(_) => pause(request).await,
                // The transaction has not run the closure yet, so it can be restarted.
                AcquireError::Failed(Error::Deadlock { source }) => {
                    conflicts += 1;
                    match request.wait {
                        Wait::No if conflicts > MAX_CONFLICTS => {
                            return Ok(Some(LockOutcome::Unavailable));
                        }
                        Wait::AtMost(_) if request.is_expired() => {
                            return Err(request.timed_out(Some(source)));
                        }
                        _ => {}
                    }
                }
                AcquireError::Failed(error) => return Err(error),
            }
        }
    }

    /// Starts the transaction and acquires the locks in one message. Returns `None`, with no transaction open, when that
    /// failed: then the caller acquires the locks one by one, which waits or returns the error. A request that does not wait
    /// is answered at once when another transaction holds a row.
    async fn try_begin_fast(&mut self, request: &Request) -> Result<Option<LockOutcome>, Error> {
        let started = caught(self.0.begin(&sql::begin_and_acquire(request))).await;
        let Err(error) = depth::break_if_panicked(self.0.status(), started) else {
            return Ok(Some(LockOutcome::Acquired));
        };
        let error = untracked(error)?;
        // Its error takes precedence: the first one may be that of a condition of this crate.
        self.restore_by_text(&sql::undo(request)).await?;
        let held = matches!(
            classify(&error),
            ErrorClass::LockTimeout | ErrorClass::LockNotAvailable
        );
        Ok((held && request.wait == Wait::No).then_some(LockOutcome::Unavailable))
    }

    pub(crate) async fn lock_on_server(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        let mut acquisition = Acquisition::new(self, request);
        let outcome = acquisition.acquire().await;
        let acquired = acquisition.acquired;
        let error = match outcome {
            Ok(()) => return Ok(LockOutcome::Acquired),
            Err(AcquireError::Unavailable { timed_out: true })
                if self.timeout_rolls_back().await? =>
            {
                ending::ended(None)
            }
            Err(AcquireError::LimitOfServer(error) | AcquireError::Failed(error)) => error,
            Err(_) if acquired == 0 => return Ok(LockOutcome::Unavailable),
            Err(_) => request.unavailable(),
        };
        Err(request.partly_locked(acquired, error))
    }
}

/// Whether the request is for transient locks alone, which one message acquires if the objects are free.
fn is_batched(request: &Request) -> bool {
    !request.is_kept() && request.shared.is_empty()
}

/// Acquires the locks of a request, in its order.
struct Acquisition<'a, 'c, C> {
    engine: &'a mut MysqlEngine<'c, C>,
    request: &'a Request,
    /// The transaction was started for the request, at READ COMMITTED, and may be rolled back and restarted.
    is_started: bool,
    /// Whether kept rows are missing: take the named lock first.
    creates_rows: bool,
    /// Whether the session's isolation level is to be checked, which the next statement returns.
    level_unknown: bool,
    /// The number of locks that InnoDB may hold until the transaction ends, also after an error and a rollback to a savepoint.
    acquired: usize,
}

impl<'a, 'c, C: Link<Db = Mysql>> Acquisition<'a, 'c, C> {
    fn new(engine: &'a mut MysqlEngine<'c, C>, request: &'a Request) -> Self {
        Self {
            engine,
            request,
            is_started: false,
            creates_rows: false,
            level_unknown: false,
            acquired: 0,
        }
    }

    async fn acquire(&mut self) -> Result<(), AcquireError> {
        let request = self.request;
        let resource = || request.resource();
        let in_batches = is_batched(request) && request.ids.len() > LOCK_BATCH;
        let probes = !self.is_started && request.wait == Wait::No && request.ids.len() > 1;
        if !self.is_started {
            if probes || in_batches {
                or_failed(self.engine.ensure_read_committed(resource).await)?;
            } else {
                self.level_unknown = or_failed(self.engine.is_level_unknown(resource))?;
            }
        }
        if probes {
            self.probe().await?;
        }
        if !in_batches {
            return self.acquire_each(&request.ids).await;
        }
        for ids in request.ids.chunks(LOCK_BATCH) {
            let before = self.acquired;
            // Until the message succeeds, any of them may be locked.
            self.acquired += ids.len();
            if !self.try_acquire_fast(ids).await? {
                self.acquired = before;
                // It may hold locks of the message, whose savepoint was rolled back.
                self.is_started = false;
                self.acquire_each(ids).await?;
            }
        }
        Ok(())
    }

    /// Acquires transient locks in one message. `false`: it failed, none is acquired, and the transaction is still open.
    async fn try_acquire_fast(&mut self, ids: &[ObjectId]) -> Result<bool, AcquireError> {
        let message = sql::acquire_in_savepoint(ids, self.request.wait);
        // A failed message may leave named locks held.
        let acquired = caught(self.engine.0.batch(&message)).await;
        let Err(error) = depth::break_if_panicked(self.engine.0.status(), acquired) else {
            return Ok(true);
        };
        let failure = self.engine.with_errno(error).await;
        // This fails when InnoDB has rolled back the transaction.
        if self.engine.0.batch(&sql::undo_savepoint(ids)).await.is_ok() {
            return Ok(false);
        }
        for id in ids {
            if self.release_named_lock(id).await.is_err() {
                break;
            }
        }
        or_failed(Err(failure))
    }

    async fn acquire_each(&mut self, ids: &[ObjectId]) -> Result<(), AcquireError> {
        let request = self.request;
        let resource = || request.resource();
        for id in ids {
            let is_shared = request.is_shared(id);
            if is_shared && mem::take(&mut self.level_unknown) {
                or_failed(self.engine.ensure_read_committed(resource).await)?;
            }
            // A shared lock on a record that does not exist may deadlock with another one, and with an insert.
            let may_exist = if is_shared {
                self.is_started || self.row(id, "").await?.is_some()
            } else {
                request.is_kept()
            };
            if may_exist && !self.creates_rows {
                if let Some(session) = self.lock_row(id).await? {
                    if mem::take(&mut self.level_unknown) {
                        or_failed(self.engine.check_session(resource, session).await)?;
                    }
                    self.acquired += 1;
                    continue;
                }
                if self.is_started {
                    return Err(AcquireError::NoRow { is_shared });
                }
            }
            if mem::take(&mut self.level_unknown) {
                or_failed(self.engine.ensure_read_committed(resource).await)?;
            }
            let locked = caught(self.acquire_with_named_lock(id)).await;
            depth::break_if_panicked(self.engine.0.status(), locked)?;
            self.acquired += 1;
        }
        Ok(())
    }

    /// Whether the transaction was started for the request and holds no lock yet, so that it can't be part of a deadlock.
    fn holds_nothing(&self) -> bool {
        self.is_started && self.acquired == 0
    }

    async fn lock_row(&mut self, id: &ObjectId) -> Result<Option<Session>, AcquireError> {
        let clause = if self.request.is_shared(id) {
            sql::IN_SHARE_MODE
        } else {
            sql::FOR_UPDATE
        };
        self.row(id, clause).await
    }

    /// Reads the row, and locks it by the clause, if that is not empty. Returns the session's state, or `None` if there is no
    /// row, or the session's level is unsuitable.
    async fn row(
        &mut self,
        id: &ObjectId,
        clause: &'static str,
    ) -> Result<Option<Session>, AcquireError> {
        let request = self.request;
        loop {
            let left = request.remaining_millis();
            let waits = left != Some(0);
            let limit = match request.wait {
                Wait::AtMost(_) if !waits => Some(GRACE_MS),
                Wait::AtMost(_) => left.map(|left| left.max(MIN_LIMIT_MS)),
                Wait::No if clause.is_empty() => Some(GRACE_MS),
                Wait::Forever | Wait::No => None,
            };
            let row = sql::Row {
                id: id.as_str().as_bytes(),
                level: if self.level_unknown { 3 } else { 5 },
                clause,
                waits: waits || clause.is_empty(),
            };
            let (row, took) = self.engine.get_within::<_, (_, i64)>(limit, row).await;
            match row {
                Ok(None) => return Ok(None),
                Ok(Some((session, unknown))) => {
                    or_failed(self.engine.ensure_one_writer(unknown == 1).await)?;
                    return Ok(Some(session));
                }
                Err(failure) => self.after_wait(failure, waits, limit, took).await?,
            }
        }
    }

    /// Returns `Ok` when the statement should be tried again. `waits`: with the time limit of the request, if it has one.
    async fn after_wait(
        &mut self,
        failure: MysqlError,
        waits: bool,
        limit: Option<i32>,
        took: Duration,
    ) -> Result<(), AcquireError> {
        let request = self.request;
        if !limit.map_or(failure.is_end_of_wait(), |limit| {
            is_end_of(&failure, limit, took)
        }) {
            return or_failed(Err(failure));
        }
        match failure.class {
            // `StatementTimeout`: the table is locked.
            class if request.wait == Wait::No => {
                let timed_out = class == ErrorClass::LockTimeout;
                Err(AcquireError::Unavailable { timed_out })
            }
            // The wait may be part of a deadlock that InnoDB does not detect: through a lock on a table, or with
            // `innodb_deadlock_detect = OFF`. Only the end of this wait breaks it.
            ErrorClass::LockTimeout if request.wait == Wait::Forever && !self.holds_nothing() => {
                let error = request.timed_out(Some(failure.error));
                Err(AcquireError::LimitOfServer(error))
            }
            ErrorClass::LockTimeout if waits => {
                // The end of the wait has ended the transaction, which is restarted if it was started for the request.
                if or_failed(self.engine.timeout_rolls_back().await)? {
                    let error = request.timed_out(Some(failure.error));
                    return Err(AcquireError::LimitOfServer(error));
                }
                if took < SHORTEST_WAIT {
                    pause(request).await;
                }
                Ok(())
            }
            ErrorClass::StatementTimeout | ErrorClass::InsufficientPrivilege(_)
                if waits && request.wait != Wait::Forever =>
            {
                Ok(())
            }
            _ => Err(AcquireError::Failed(request.timed_out(Some(failure.error)))),
        }
    }

    /// Fails with [`AcquireError::Unavailable`] if another transaction holds one of the objects. Locks none of them.
    async fn probe(&mut self) -> Result<(), AcquireError> {
        let request = self.request;
        let exclusive: Vec<_> = request.exclusive().collect();
        let shared: Vec<_> = request.shared.iter().collect();
        let exclusive = exclusive.chunks(PROBE_BATCH).map(|ids| (ids, false));
        let shared = shared.chunks(PROBE_BATCH).map(|ids| (ids, true));
        for (ids, shared) in exclusive.chain(shared) {
            let probe = Probe { ids, shared };
            let probed: Result<i64, _> = self.engine.get_result(probe).await;
            if let Err(failure) = &probed
                && failure.is_end_of_wait()
            {
                let timed_out = failure.class == ErrorClass::LockTimeout;
                return Err(AcquireError::Unavailable { timed_out });
            }
            or_failed(probed)?;
        }
        Ok(())
    }

    /// Inserts the row and, for a transient lock, deletes it: its index record stays locked until the transaction ends.
    /// Returns `false` when it was not inserted and the caller should try again.
    async fn insert_row(&mut self, id: &ObjectId) -> Result<bool, AcquireError> {
        let (id, is_kept) = (Named(id.as_str()), self.request.keeps(id));
        let (mut started, is_limited) = (Instant::now(), self.request.wait != Wait::Forever);
        let inserted = caught(async {
            // Another session may have inserted it meanwhile. `lock_row` waits for its transaction, within the request's limit.
            if is_limited {
                self.engine.execute(sql::LimitInsert {}).await?;
                started = Instant::now();
            }
            self.engine.execute_cached(sql::insert(id, is_kept)).await
        });
        let inserted = inserted.await;
        let inserted = if is_limited {
            let restore = sql::RestoreInsert {};
            self.engine.restore_by(&restore, inserted).await
        } else {
            inserted.unwrap_or_else(|panic| resume_unwind(panic))
        };
        match inserted {
            Ok(_) if is_kept => Ok(true),
            Ok(_) => or_failed(self.engine.execute(sql::delete(id)).await).map(|_| true),
            Err(failure) if failure.is_duplicate() => Ok(false),
            Err(failure) => {
                let (waits, took) = (!self.request.is_expired(), started.elapsed());
                self.after_wait(failure, waits, None, took).await?;
                Ok(false)
            }
        }
    }
}

/// Whether a statement that took so long was ended by its limit of so many milliseconds, or a lock ended it. MySQL also reports a
/// missing privilege when the time is up while the statement waits for another session that changes privileges.
fn is_end_of(failure: &MysqlError, limit: i32, took: Duration) -> bool {
    let is_denied = matches!(failure.class, ErrorClass::InsufficientPrivilege(_));
    failure.is_end_of_wait() || (is_denied && took >= millis(limit))
}

fn millis(millis: i32) -> Duration {
    Duration::from_millis(millis.unsigned_abs().into())
}
