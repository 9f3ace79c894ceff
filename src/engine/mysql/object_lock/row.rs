//! Locks the row of an id, or inserts it.

use std::time::{Duration, Instant};

use diesel::mysql::Mysql;

use super::error::AcquireError;
use crate::engine::mysql::execute::{MysqlError, Run, within};
use crate::engine::mysql::sql::session_state::Session;
use crate::engine::mysql::sql::{RollbackOnTimeout, object_lock as sql};
use crate::engine::mysql::writers;
use crate::error::classify::ErrorClass;
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::timer::Timer;
use crate::{ObjectId, Wait, backoff};

/// The shortest time limit of a statement that waits, in milliseconds. Afterwards the request's time is up, so only one
/// id of a request gets it. On MariaDB the limit also applies to the statements that read the error's number.
pub(super) const MIN_LIMIT_MS: i32 = 10;

/// The time limit, in milliseconds, of a statement that does not wait for locks, when the request's time is up: on
/// MySQL it waits while another session changes users or privileges. Far more than it takes on a busy server.
const GRACE_MS: i32 = 200;

/// The most objects of one probe.
const PROBE_BATCH: usize = 1000;

/// The pause before a statement is sent again that the server has ended without waiting: MariaDB with
/// `innodb_lock_wait_timeout = 0` or `lock_wait_timeout = 0`. Half of it at least.
const PAUSE: Duration = Duration::from_millis(20);

/// The shortest limit of the server that is more than none is 1 s. A statement that ended earlier has not waited.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);

/// An object of a request.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) request: &'a Request,
    pub(super) id: &'a ObjectId,
    /// The transaction was begun for the request and holds no lock yet, so it can't be part of a deadlock.
    pub(super) holds_nothing: bool,
}

impl Target<'_> {
    fn key(&self) -> &[u8] {
        self.id.as_str().as_bytes()
    }
}

/// Locks the row and returns the session's state, or `None` if there is no row.
pub(super) async fn lock_row(
    conn: &mut impl Link<Backend = Mysql>,
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
        let row: Result<Option<(Session, i64)>, MysqlError> = within!(conn, limit, async {
            // Only the statement is timed: the limit does not apply to those that set and restore it.
            let started = Instant::now();
            let row = if waits {
                sql::lock_row(id).get_optional(conn).await
            } else {
                sql::LockRowNow { id }.get_optional(conn).await
            };
            took = started.elapsed();
            row
        });
        match row {
            Ok(None) => return Ok(None),
            Ok(Some((session, unknown))) => {
                writers::ensure_one(conn, unknown == 1)
                    .await
                    .map_err(AcquireError::failed)?;
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
async fn after_wait<C: Link<Backend = Mysql>>(
    conn: &mut C,
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
            if !time_is_up
                && !rolled_back_by_timeout(conn)
                    .await
                    .map_err(AcquireError::failed)? =>
        {
            if took < SHORTEST_WAIT {
                pause::<C>(request).await;
            }
            Ok(())
        }
        ErrorClass::StatementTimeout if !time_is_up && request.wait != Wait::Forever => Ok(()),
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout => {
            Err(AcquireError::Failed(request.timed_out(Some(failure.error))))
        }
        _ => Err(AcquireError::failed(failure)),
    }
}

/// Pauses before the request asks again, at most until its time is up.
pub(in crate::engine::mysql) async fn pause<C: Link<Backend = Mysql>>(request: &Request) {
    let pause = backoff::jittered(PAUSE);
    C::LockTimer::pause(request.remaining().unwrap_or(pause).min(pause)).await;
}

/// Whether `innodb_lock_wait_timeout` also ends the transaction and not only the statement
/// (`innodb_rollback_on_timeout`).
pub(in crate::engine::mysql) async fn rolled_back_by_timeout(
    conn: &mut impl Link<Backend = Mysql>,
) -> Result<bool, MysqlError> {
    let set: i64 = RollbackOnTimeout {}.get_result(conn).await?;
    Ok(set == 1)
}

/// Fails with [`AcquireError::Unavailable`] if another transaction holds one of the objects. Locks none of them, in a
/// transaction at READ COMMITTED.
pub(super) async fn probe(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
) -> Result<(), AcquireError> {
    for ids in request.ids.chunks(PROBE_BATCH) {
        let probed: Result<i64, MysqlError> = sql::Probe { ids }.get_result(conn).await;
        match probed {
            Ok(_) => {}
            // `StatementTimeout`: the table is locked.
            Err(failure) if failure.is_end_of_wait() => {
                let timed_out = failure.class == ErrorClass::LockTimeout;
                return Err(AcquireError::Unavailable { timed_out });
            }
            Err(failure) => return Err(AcquireError::failed(failure)),
        }
    }
    Ok(())
}

/// Inserts the row and, for a transient lock, deletes it: its index record stays locked until the transaction ends.
/// Returns `false` when it was not inserted and the caller should try again.
pub(super) async fn insert_row(
    conn: &mut impl Link<Backend = Mysql>,
    target: Target<'_>,
) -> Result<bool, AcquireError> {
    let (request, id) = (target.request, target.key());
    let started = Instant::now();
    let made = sql::insert(id, request.is_kept())
        .execute_cached(conn)
        .await;
    match made {
        Ok(_) => {}
        Err(failure) if failure.is_duplicate() => return Ok(false),
        Err(failure) => {
            after_wait(
                conn,
                target,
                failure,
                request.is_expired(),
                started.elapsed(),
            )
            .await?;
            return Ok(false);
        }
    }
    if !request.is_kept() {
        sql::delete(id)
            .execute(conn)
            .await
            .map_err(AcquireError::failed)?;
    }
    Ok(true)
}
