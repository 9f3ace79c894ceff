//! Acquires object locks.
//!
//! InnoDB detects deadlocks among waits for rows, but not those that involve a named lock. So a transaction that may
//! hold other locks stops waiting for the named lock after [`NAMED_LOCK_TIMEOUT`] and waits for the row itself.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::mysql::MysqlConnection;

use super::execute::{MysqlError, Run, with_errno, within};
use super::{
    assert_in_transaction, is_read_committed, level_named, session, sql, unsuitable_isolation,
    writers,
};
use crate::engine::active_isolation::Begun;
use crate::error::classify::ErrorClass;
use crate::object_lock::acquire::Request;
use crate::{Error, IsolationLevel, ObjectId, Wait, transaction::depth};

/// The time in seconds that a transaction that may hold other locks waits for a named lock per attempt.
const NAMED_LOCK_TIMEOUT: i32 = 1;

/// The shortest time limit of a statement that waits, in milliseconds. Afterwards the request's time is up, so only one
/// id of a request gets it. On MariaDB the limit also applies to the statements that read the error's number.
const MIN_LIMIT_MS: i32 = 10;

/// The time limit, in milliseconds, of a statement that does not wait for locks, when the request's time is up: on
/// MySQL it waits while another session changes users or privileges. Far more than it takes on a busy server.
const GRACE_MS: i32 = 200;

/// The transaction in which to acquire the locks.
#[derive(Clone, Copy)]
pub(super) enum TxContext {
    /// Started for this request, at READ COMMITTED; it may be rolled back and restarted.
    Begun {
        /// Whether to take the named lock first, because the row is likely to be missing.
        named_lock: bool,
    },
    /// It was open before the request.
    Open {
        /// Its mark, if this crate has started it; its isolation level overrides the session's.
        begun: Option<Begun>,
    },
}

/// Why the locks were not acquired.
pub(super) enum AcquireError {
    /// Another transaction holds one of them, and the request does not wait.
    Unavailable,
    /// A kept row is missing: restart the transaction and take the named lock first.
    NoRow,
    Failed(Error),
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<MysqlError> for AcquireError {
    fn from(failure: MysqlError) -> Self {
        Self::Failed(failure.into())
    }
}

/// Acquires all locks, in the request's order.
pub(super) fn acquire(
    conn: &mut MysqlConnection,
    request: &Request,
    transaction: TxContext,
) -> Result<(), AcquireError> {
    let unknown = match transaction {
        TxContext::Begun { .. }
        | TxContext::Open {
            begun: Some(Begun(Some(IsolationLevel::ReadCommitted))),
        } => None,
        TxContext::Open {
            begun: Some(Begun(Some(level))),
        } => return Err(unsuitable_isolation(request, level.sql()).into()),
        TxContext::Open {
            begun: Some(Begun(None)),
        } => Some(Unknown::Level),
        TxContext::Open { begun: None } => Some(Unknown::TxContext),
    };
    if request.is_kept() || request.ids.len() <= sql::LOCK_BATCH {
        return acquire_each(conn, request, &request.ids, transaction, unknown);
    }
    if let Some(unknown) = unknown {
        unknown.ask(conn, request)?;
    }
    for ids in request.ids.chunks(sql::LOCK_BATCH) {
        if !try_acquire_fast(conn, ids, request.wait)? {
            let transaction = TxContext::Open {
                begun: Some(Begun(Some(IsolationLevel::ReadCommitted))),
            };
            acquire_each(conn, request, ids, transaction, None)?;
        }
    }
    Ok(())
}

/// Acquires transient locks in one message. Returns `false`, with none of them acquired, when the message failed and
/// the transaction is still open.
fn try_acquire_fast(
    conn: &mut MysqlConnection,
    ids: &[ObjectId],
    wait: Wait,
) -> Result<bool, AcquireError> {
    let message = sql::acquire_in_savepoint(ids, wait);
    // A failed message may leave named locks held.
    let Err(error) = depth::break_on_panic(conn, |conn| conn.batch_execute(&message)) else {
        return Ok(true);
    };
    let failure = with_errno(conn, error);
    // This fails when InnoDB has rolled back the transaction.
    if conn.batch_execute(&sql::undo_savepoint(ids)).is_ok() {
        return Ok(false);
    }
    for id in ids {
        release_named_lock(conn, id)?;
    }
    Err(failure.into())
}

/// Acquires the locks one by one.
fn acquire_each(
    conn: &mut MysqlConnection,
    request: &Request,
    ids: &[ObjectId],
    transaction: TxContext,
    mut unknown: Option<Unknown>,
) -> Result<(), AcquireError> {
    for (position, id) in ids.iter().enumerate() {
        let named_lock_first = match transaction {
            TxContext::Begun { named_lock } => named_lock,
            TxContext::Open { .. } => !request.is_kept(),
        };
        if !named_lock_first {
            match lock_row(conn, request, id)? {
                Some(session) => {
                    if let Some(unknown) = unknown.take() {
                        unknown.check(conn, request, session)?;
                    }
                    continue;
                }
                None if matches!(transaction, TxContext::Begun { .. }) => {
                    return Err(AcquireError::NoRow);
                }
                None => {}
            }
        }
        if let Some(unknown) = unknown.take() {
            unknown.ask(conn, request)?;
        }
        let holds_no_locks = matches!(transaction, TxContext::Begun { .. }) && position == 0;
        depth::break_on_panic(conn, |conn| {
            acquire_with_named_lock(conn, request, id, holds_no_locks)
        })?;
    }
    Ok(())
}

/// The session's isolation level, and whether a transaction is open if the server reports it.
type Session = (i64, Option<i64>);

/// What to check in an open transaction before locks are acquired in it.
#[derive(Clone, Copy)]
enum Unknown {
    /// This crate has started it at the session's level: whether the closure reads what the last holder committed.
    Level,
    /// Also whether a transaction is open on the server.
    TxContext,
}

impl Unknown {
    fn ask(self, conn: &mut MysqlConnection, request: &Request) -> Result<(), AcquireError> {
        let session = sql::SessionState {}.get_result(conn)?;
        self.check(conn, request, session)
    }

    fn check(
        self,
        conn: &mut MysqlConnection,
        request: &Request,
        (level, in_transaction): Session,
    ) -> Result<(), AcquireError> {
        if let Self::TxContext = self {
            assert_in_transaction(conn, in_transaction)?;
        }
        if is_read_committed(level) {
            Ok(())
        } else {
            Err(unsuitable_isolation(request, level_named(level)).into())
        }
    }
}

/// `holds_no_locks`: the transaction holds no locks yet, so it can't be part of a deadlock.
fn acquire_with_named_lock(
    conn: &mut MysqlConnection,
    request: &Request,
    id: &ObjectId,
    holds_no_locks: bool,
) -> Result<(), AcquireError> {
    loop {
        if acquire_named_lock(conn, request, id, holds_no_locks)? {
            let locked = lock_or_insert_row(conn, request, id);
            release_named_lock(conn, id)?;
            return locked;
        }
        if lock_row(conn, request, id)?.is_some() {
            return Ok(());
        }
        // After waiting for a row that was then deleted, this session still has its index record locked, and the holder
        // of the named lock waits for it. If no session has the record locked, two inserts may deadlock, which InnoDB
        // resolves.
        if insert_row(conn, request, id)? {
            return Ok(());
        }
    }
}

/// Called under the named lock, where no other session inserts a row of this id.
fn lock_or_insert_row(
    conn: &mut MysqlConnection,
    request: &Request,
    id: &ObjectId,
) -> Result<(), AcquireError> {
    while lock_row(conn, request, id)?.is_none() {
        if insert_row(conn, request, id)? {
            break;
        }
    }
    Ok(())
}

/// Locks the row and returns the session's state, or `None` if there is no row.
fn lock_row(
    conn: &mut MysqlConnection,
    request: &Request,
    id: &ObjectId,
) -> Result<Option<Session>, AcquireError> {
    let id = id.as_str().as_bytes();
    loop {
        let left = request.remaining_millis();
        let waits = left != Some(0);
        let limit = match request.wait {
            Wait::AtMost(_) if waits => left.map(|left| left.max(MIN_LIMIT_MS)),
            Wait::AtMost(_) => Some(GRACE_MS),
            Wait::Forever | Wait::No => None,
        };
        let mut took = Duration::ZERO;
        let row: Result<Option<(Session, i64)>, MysqlError> = within(conn, limit, |conn| {
            // Only the statement is timed: the limit does not apply to those that set and restore it.
            let begun = Instant::now();
            let row = if waits {
                sql::lock_row(id).get_optional(conn)
            } else {
                sql::LockRowNow { id }.get_optional(conn)
            };
            took = begun.elapsed();
            row
        });
        match row {
            Ok(None) => return Ok(None),
            Ok(Some((session, unknown))) => {
                writers::ensure_one(conn, unknown == 1)?;
                return Ok(Some(session));
            }
            Err(failure) if failure.is_insufficient_privilege() && is_over(limit, took) => {
                if !waits {
                    return Err(request.timed_out(Some(failure.error)).into());
                }
            }
            Err(failure) => after_wait(conn, request, failure, !waits)?,
        }
    }
}

/// Whether the statement took as long as its limit. MySQL also reports a missing privilege when the time is up while
/// the statement waits for another session that changes privileges.
fn is_over(limit: Option<i32>, took: Duration) -> bool {
    limit.is_some_and(|millis| took >= Duration::from_millis(u64::from(millis.unsigned_abs())))
}

/// Returns `Ok` when the statement should be tried again.
fn after_wait(
    conn: &mut MysqlConnection,
    request: &Request,
    failure: MysqlError,
    time_is_up: bool,
) -> Result<(), AcquireError> {
    match failure.class {
        // `StatementTimeout`: the table is locked.
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
            if request.wait == Wait::No =>
        {
            Err(AcquireError::Unavailable)
        }
        ErrorClass::LockTimeout if !time_is_up && !rolled_back_by_timeout(conn)? => Ok(()),
        ErrorClass::StatementTimeout if !time_is_up && request.wait != Wait::Forever => Ok(()),
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout => {
            Err(request.timed_out(Some(failure.error)).into())
        }
        _ => Err(failure.into()),
    }
}

/// Whether `innodb_lock_wait_timeout` also ends the transaction and not only the statement
/// (`innodb_rollback_on_timeout`).
pub(super) fn rolled_back_by_timeout(conn: &mut MysqlConnection) -> Result<bool, MysqlError> {
    let set: i64 = sql::RollbackOnTimeout {}.get_result(conn)?;
    Ok(set == 1)
}

/// Inserts the row and, for a transient lock, deletes it: its index record stays locked until the transaction ends.
/// Returns `false` when it was not inserted and the caller should try again.
fn insert_row(
    conn: &mut MysqlConnection,
    request: &Request,
    id: &ObjectId,
) -> Result<bool, AcquireError> {
    let id = id.as_str().as_bytes();
    let made = sql::insert(id, request.is_kept()).execute_cached(conn);
    match made {
        Ok(_) => {}
        Err(failure) if failure.is_duplicate() => return Ok(false),
        Err(failure) => {
            after_wait(conn, request, failure, request.is_expired())?;
            return Ok(false);
        }
    }
    if !request.is_kept() {
        sql::delete(id).execute(conn)?;
    }
    Ok(true)
}

/// Acquires the named lock. Returns `false` when the transaction should wait for the row instead.
fn acquire_named_lock(
    conn: &mut MysqlConnection,
    request: &Request,
    id: &ObjectId,
    holds_no_locks: bool,
) -> Result<bool, AcquireError> {
    let name = id.as_str().as_bytes();
    loop {
        let (seconds, limit) = match request.remaining_millis() {
            Some(0) => (0, None),
            left => (
                if holds_no_locks {
                    i32::MAX
                } else {
                    NAMED_LOCK_TIMEOUT
                },
                left.map(|left| left.max(MIN_LIMIT_MS)),
            ),
        };
        let taken: Result<(Option<i64>, i64), MysqlError> = within(conn, limit, |conn| {
            sql::AcquireNamedLock { id: name, seconds }.get_result(conn)
        });
        let error = match taken {
            Ok((taken, unknown)) => {
                let one_writer = writers::ensure_one(conn, unknown == 1);
                if one_writer.is_err() && taken == Some(1) {
                    release_named_lock(conn, id)?;
                }
                one_writer?;
                match taken {
                    Some(1) => return Ok(true),
                    _ if request.wait == Wait::No => return Err(AcquireError::Unavailable),
                    // MariaDB ends the wait without an error when the statement's time is up.
                    _ => None,
                }
            }
            Err(failure) => {
                if failure.is_interrupted() {
                    // It may have acquired the named lock.
                    release_named_lock(conn, id)?;
                }
                if failure.class != ErrorClass::StatementTimeout {
                    return Err(failure.into());
                }
                Some(failure.error)
            }
        };
        if seconds == 0 || (error.is_some() && request.wait == Wait::Forever) {
            return Err(request.timed_out(error).into());
        }
        // When the time is up, the named lock is requested once more without waiting. Without it, inserting a missing
        // row could wait for another session.
        if !holds_no_locks && !request.is_expired() {
            return Ok(false);
        }
    }
}

fn release_named_lock(conn: &mut MysqlConnection, id: &ObjectId) -> Result<(), AcquireError> {
    let id = id.as_str().as_bytes();
    session::restore(conn, &sql::ReleaseNamedLock { id }).map_err(Error::from)?;
    Ok(())
}
