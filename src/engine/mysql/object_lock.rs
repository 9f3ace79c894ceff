//! Acquires object locks: locks the row of an id, or inserts it under the named lock under which one session at a time does so.

use std::time::{Duration, Instant};

use diesel::mysql::Mysql;

use crate::engine::active_isolation;
use crate::engine::mysql::execute::{self, MysqlError, restore_limit, set_limit, with_errno};
use crate::engine::mysql::object_lock_sql::{
    self as sql, AcquireNamedLock, LOCK_BATCH, ReleaseNamedLock, acquire_in_savepoint,
    undo_savepoint,
};
use crate::engine::mysql::session::{self, Unknown};
use crate::engine::mysql::sql::{RollbackOnTimeout, Session};
use crate::engine::mysql::writers;
use crate::engine::tables::Named;
use crate::error::classify::ErrorClass;
use crate::link::{On, depth};
use crate::rt::{self, backoff, caught};
use crate::values::lock_request::Request;
use crate::{Error, ObjectId, Wait};

pub(crate) enum AcquireError {
    Unavailable {
        /// A statement timed out at once: MariaDB's answer to NOWAIT. It may have ended the transaction.
        timed_out: bool,
    },
    /// A kept row is missing: restart the transaction and take the named lock first.
    NoRow,
    /// A limit of the server (`innodb_lock_wait_timeout`) ended a wait without limit in a transaction that holds something.
    LimitOfServer(Error),
    Failed(Error),
}

/// Without `From`: in an error about the type of an application's error (E0283) the compiler would list this type.
fn or_failed<T>(result: Result<T, impl Into<Error>>) -> Result<T, AcquireError> {
    result.map_err(|error| AcquireError::Failed(error.into()))
}

#[derive(Clone, Copy)]
pub(crate) enum TxContext {
    /// Started for this request, at READ COMMITTED; it may be rolled back and restarted.
    Started {
        /// Whether to take the named lock first, because the row is likely to be missing.
        named_lock: bool,
    },
    Open,
}

/// Acquires all locks, in the request's order. In an open transaction InnoDB may hold the locks that were acquired before an
/// error until the transaction ends, also after a rollback to a savepoint: `acquired` counts them.
pub(crate) async fn acquire(
    conn: &mut impl On<Mysql>,
    request: &Request,
    transaction: TxContext,
    acquired: &mut usize,
) -> Result<(), AcquireError> {
    let mut unknown = match transaction {
        TxContext::Started { .. } => None,
        TxContext::Open => {
            let started = active_isolation::entered(conn);
            or_failed(Unknown::of(started, || request.resource()))?
        }
    };
    let in_batches = !request.is_kept() && request.ids.len() > LOCK_BATCH;
    let probes =
        matches!(transaction, TxContext::Open) && request.wait == Wait::No && request.ids.len() > 1;
    if (in_batches || probes)
        && let Some(unknown) = unknown.take()
    {
        or_failed(unknown.ask(conn, || request.resource()).await)?;
    }
    if probes {
        probe(conn, request).await?;
    }
    if !in_batches {
        return acquire_each(conn, request, &request.ids, transaction, unknown, acquired).await;
    }
    for ids in request.ids.chunks(LOCK_BATCH) {
        let before = *acquired;
        // Until the message succeeds, any of them may be locked.
        *acquired += ids.len();
        if !try_acquire_fast(conn, ids, request.wait).await? {
            *acquired = before;
            acquire_each(conn, request, ids, TxContext::Open, None, acquired).await?;
        }
    }
    Ok(())
}

/// Acquires transient locks in one message. Returns `false`, with none of them acquired, when the message failed and
/// the transaction is still open.
async fn try_acquire_fast(
    conn: &mut impl On<Mysql>,
    ids: &[ObjectId],
    wait: Wait,
) -> Result<bool, AcquireError> {
    let message = acquire_in_savepoint(ids, wait);
    // A failed message may leave named locks held.
    let acquired = caught(conn.batch(&message)).await;
    let Err(error) = depth::break_if_panicked(conn.status(), acquired) else {
        return Ok(true);
    };
    let failure = with_errno(conn, error).await;
    // This fails when InnoDB has rolled back the transaction.
    if conn.batch(&undo_savepoint(ids)).await.is_ok() {
        return Ok(false);
    }
    for id in ids {
        if release_named_lock(conn, id).await.is_err() {
            break;
        }
    }
    or_failed(Err(failure))
}

async fn acquire_each(
    conn: &mut impl On<Mysql>,
    request: &Request,
    ids: &[ObjectId],
    transaction: TxContext,
    mut unknown: Option<Unknown>,
    acquired: &mut usize,
) -> Result<(), AcquireError> {
    for id in ids {
        let target = Target {
            request,
            id,
            holds_nothing: matches!(transaction, TxContext::Started { .. }) && *acquired == 0,
        };
        let named_lock_first = match transaction {
            TxContext::Started { named_lock } => named_lock,
            TxContext::Open => !request.is_kept(),
        };
        if !named_lock_first {
            match lock_row(conn, target).await? {
                Some(session) => {
                    if let Some(unknown) = unknown.take() {
                        let resource = || request.resource();
                        or_failed(unknown.check(conn, resource, session).await)?;
                    }
                    *acquired += 1;
                    continue;
                }
                None if matches!(transaction, TxContext::Started { .. }) => {
                    return Err(AcquireError::NoRow);
                }
                None => {}
            }
        }
        if let Some(unknown) = unknown.take() {
            or_failed(unknown.ask(conn, || request.resource()).await)?;
        }
        let locked = caught(acquire_with_named_lock(conn, target)).await;
        depth::break_if_panicked(conn.status(), locked)?;
        *acquired += 1;
    }
    Ok(())
}

// The row of one id.

/// The shortest time limit of a statement that waits, in milliseconds. Afterwards the request's time is up, so only one
/// id of a request gets it. On MariaDB the limit also applies to the statements that read the error's number.
pub(crate) const MIN_LIMIT_MS: i32 = 10;

/// The time limit, in milliseconds, of a statement that does not wait for locks, when the request's time is up: on
/// MySQL it waits while another session changes users or privileges. Far more than it takes on a busy server.
const GRACE_MS: i32 = 200;

const PROBE_BATCH: usize = 1000;

/// The pause before a statement is sent again that the server has ended without waiting: MariaDB with
/// `innodb_lock_wait_timeout = 0` or `lock_wait_timeout = 0`. Half of it at least.
const PAUSE: Duration = Duration::from_millis(20);

/// The shortest limit of the server that is more than none is 1 s. A statement that ended earlier has not waited.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);

/// The time in seconds that a transaction that may hold other locks waits for a named lock per attempt: InnoDB does not detect
/// deadlocks that involve it.
const NAMED_LOCK_TIMEOUT: i32 = 1;

#[derive(Clone, Copy)]
struct Target<'a> {
    request: &'a Request,
    id: &'a ObjectId,
    /// The transaction was begun for the request and holds no lock yet, so it can't be part of a deadlock.
    holds_nothing: bool,
}

impl Target<'_> {
    fn key(&self) -> Named<'_> {
        Named(self.id.as_str())
    }
}

/// Locks the row and returns the session's state, or `None` if there is no row.
async fn lock_row(
    conn: &mut impl On<Mysql>,
    target: Target<'_>,
) -> Result<Option<Session>, AcquireError> {
    let (request, id) = (target.request, target.key());
    loop {
        let left = request.remaining_millis();
        let waits = left != Some(0);
        let limit = match request.wait {
            Wait::AtMost(_) if waits => left.map(|left| left.max(MIN_LIMIT_MS)),
            Wait::AtMost(_) => Some(GRACE_MS),
            Wait::Forever | Wait::No => None,
        };
        let mut took = Duration::ZERO;
        let row = caught(async {
            set_limit(conn, limit).await?;
            // Only the statement is timed: the limit does not apply to those that set and restore it.
            let started = Instant::now();
            let row = if waits {
                execute::get_optional(conn, sql::lock_row(id)).await
            } else {
                let id = id.0.as_bytes();
                execute::get_optional(conn, sql::LockRowNow { id }).await
            };
            took = started.elapsed();
            row
        });
        let row = row.await;
        let row: Result<Option<(Session, i64)>, _> = restore_limit(conn, limit, row).await;
        match row {
            Ok(None) => return Ok(None),
            Ok(Some((session, unknown))) => {
                or_failed(writers::ensure_one(conn, unknown == 1).await)?;
                return Ok(Some(session));
            }
            Err(failure) if failure.is_insufficient_privilege() && is_over(limit, took) => {
                if !waits {
                    return Err(AcquireError::Failed(request.timed_out(Some(failure.error))));
                }
            }
            Err(failure) => after_wait(conn, target, failure, !waits, took).await?,
        }
    }
}

/// Whether the statement took as long as its limit. MySQL also reports a missing privilege when the time is up while
/// the statement waits for another session that changes privileges.
fn is_over(limit: Option<i32>, took: Duration) -> bool {
    limit.is_some_and(|millis| took >= Duration::from_millis(u64::from(millis.unsigned_abs())))
}

/// Returns `Ok` when the statement should be tried again.
async fn after_wait(
    conn: &mut impl On<Mysql>,
    target: Target<'_>,
    failure: MysqlError,
    time_is_up: bool,
    took: Duration,
) -> Result<(), AcquireError> {
    let request = target.request;
    match failure.class {
        // `StatementTimeout`: the table is locked.
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
            if request.wait == Wait::No =>
        {
            let timed_out = failure.class == ErrorClass::LockTimeout;
            Err(AcquireError::Unavailable { timed_out })
        }
        // The wait may be part of a deadlock that InnoDB does not detect: through a lock on a table, or with
        // `innodb_deadlock_detect = OFF`. Only the end of this wait breaks it.
        ErrorClass::LockTimeout if request.wait == Wait::Forever && !target.holds_nothing => Err(
            AcquireError::LimitOfServer(request.timed_out(Some(failure.error))),
        ),
        ErrorClass::LockTimeout
            if !time_is_up && !or_failed(rolled_back_by_timeout(conn).await)? =>
        {
            if took < SHORTEST_WAIT {
                pause(request).await;
            }
            Ok(())
        }
        ErrorClass::StatementTimeout if !time_is_up && request.wait != Wait::Forever => Ok(()),
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout => {
            Err(AcquireError::Failed(request.timed_out(Some(failure.error))))
        }
        _ => or_failed(Err(failure)),
    }
}

pub(crate) async fn pause(request: &Request) {
    let pause = backoff::jittered(PAUSE);
    rt::pause(request.remaining().unwrap_or(pause).min(pause)).await;
}

/// Whether `innodb_lock_wait_timeout` also ends the transaction and not only the statement
/// (`innodb_rollback_on_timeout`).
pub(crate) async fn rolled_back_by_timeout(conn: &mut impl On<Mysql>) -> Result<bool, MysqlError> {
    let set: i64 = execute::get_result(conn, RollbackOnTimeout {}).await?;
    Ok(set == 1)
}

/// Fails with [`AcquireError::Unavailable`] if another transaction holds one of the objects. Locks none of them, in a
/// transaction at READ COMMITTED.
async fn probe(conn: &mut impl On<Mysql>, request: &Request) -> Result<(), AcquireError> {
    for ids in request.ids.chunks(PROBE_BATCH) {
        let probed: Result<i64, MysqlError> = execute::get_result(conn, sql::Probe { ids }).await;
        match probed {
            Ok(_) => {}
            Err(failure) if failure.is_end_of_wait() => {
                let timed_out = failure.class == ErrorClass::LockTimeout;
                return Err(AcquireError::Unavailable { timed_out });
            }
            Err(failure) => return or_failed(Err(failure)),
        }
    }
    Ok(())
}

/// Inserts the row and, for a transient lock, deletes it: its index record stays locked until the transaction ends.
/// Returns `false` when it was not inserted and the caller should try again.
async fn insert_row(conn: &mut impl On<Mysql>, target: Target<'_>) -> Result<bool, AcquireError> {
    let (request, id) = (target.request, target.key());
    let started = Instant::now();
    match execute::execute_cached(conn, sql::insert(id, request.is_kept())).await {
        Ok(_) => {}
        Err(failure) if failure.is_duplicate() => return Ok(false),
        Err(failure) => {
            let (time_is_up, took) = (request.is_expired(), started.elapsed());
            after_wait(conn, target, failure, time_is_up, took).await?;
            return Ok(false);
        }
    }
    if !request.is_kept() {
        or_failed(execute::execute(conn, sql::delete(id)).await)?;
    }
    Ok(true)
}

async fn acquire_with_named_lock(
    conn: &mut impl On<Mysql>,
    target: Target<'_>,
) -> Result<(), AcquireError> {
    loop {
        if acquire_named_lock(conn, target).await? {
            let locked = lock_or_insert_row(conn, target).await;
            let released = release_named_lock(conn, target.id).await;
            return locked.and(released);
        }
        if lock_row(conn, target).await?.is_some() {
            return Ok(());
        }
        // After waiting for a row that was then deleted, this session still has its index record locked, and the holder
        // of the named lock waits for it. If no session has the record locked, two inserts may deadlock, which InnoDB
        // resolves.
        if insert_row(conn, target).await? {
            return Ok(());
        }
    }
}

/// Called under the named lock, where no other session inserts a row of this id.
async fn lock_or_insert_row(
    conn: &mut impl On<Mysql>,
    target: Target<'_>,
) -> Result<(), AcquireError> {
    while lock_row(conn, target).await?.is_none() {
        if insert_row(conn, target).await? {
            break;
        }
    }
    Ok(())
}

/// Acquires the named lock. Returns `false` when the transaction should wait for the row instead.
async fn acquire_named_lock(
    conn: &mut impl On<Mysql>,
    target: Target<'_>,
) -> Result<bool, AcquireError> {
    let Target {
        request,
        id,
        holds_nothing,
    } = target;
    let name = id.as_str().as_bytes();
    let longest = if holds_nothing {
        i32::MAX
    } else {
        NAMED_LOCK_TIMEOUT
    };
    loop {
        let (seconds, limit) = match request.remaining_millis() {
            Some(0) => (0, None),
            left => (longest, left.map(|left| left.max(MIN_LIMIT_MS))),
        };
        let taken = caught(async {
            set_limit(conn, limit).await?;
            execute::get_result(conn, AcquireNamedLock { id: name, seconds }).await
        });
        let taken = taken.await;
        let taken: Result<(Option<i64>, i64), _> = restore_limit(conn, limit, taken).await;
        let error = match taken {
            Ok((taken, unknown)) => {
                if let Err(error) = writers::ensure_one(conn, unknown == 1).await {
                    if taken == Some(1) {
                        let _ = release_named_lock(conn, id).await;
                    }
                    return or_failed(Err(error));
                }
                match taken {
                    Some(1) => return Ok(true),
                    _ if request.wait == Wait::No => {
                        return Err(AcquireError::Unavailable { timed_out: false });
                    }
                    // MariaDB ends the wait without an error when the statement's time is up.
                    _ => None,
                }
            }
            Err(failure) => {
                let released = if failure.is_interrupted() {
                    // It may have acquired the named lock.
                    release_named_lock(conn, id).await
                } else {
                    Ok(())
                };
                if failure.class != ErrorClass::StatementTimeout {
                    return or_failed(Err(failure));
                }
                released?;
                Some(failure.error)
            }
        };
        if seconds == 0 || (error.is_some() && request.wait == Wait::Forever) {
            return Err(AcquireError::Failed(request.timed_out(error)));
        }
        // When the time is up, the named lock is requested once more without waiting. Without it, inserting a missing
        // row could wait for another session.
        if !holds_nothing && !request.is_expired() {
            return Ok(false);
        }
    }
}

async fn release_named_lock(conn: &mut impl On<Mysql>, id: &ObjectId) -> Result<(), AcquireError> {
    let id = id.as_str().as_bytes();
    or_failed(session::restore(conn, &ReleaseNamedLock { id }).await)
}
