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
use crate::{ObjectId, Wait};

/// The shortest time limit of a statement that waits, in milliseconds. Afterwards the request's time is up, so only one
/// id of a request gets it. On MariaDB the limit also applies to the statements that read the error's number.
pub(super) const MIN_LIMIT_MS: i32 = 10;

/// The time limit, in milliseconds, of a statement that does not wait for locks, when the request's time is up: on
/// MySQL it waits while another session changes users or privileges. Far more than it takes on a busy server.
const GRACE_MS: i32 = 200;

/// Locks the row and returns the session's state, or `None` if there is no row.
pub(super) async fn lock_row(
    conn: &mut impl Link<Backend = Mysql>,
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
                writers::ensure_one(conn, unknown == 1).await?;
                return Ok(Some(session));
            }
            Err(failure) if failure.is_insufficient_privilege() && is_over(limit, took) => {
                if !waits {
                    return Err(request.timed_out(Some(failure.error)).into());
                }
            }
            Err(failure) => after_wait(conn, request, failure, !waits).await?,
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
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    failure: MysqlError,
    time_is_up: bool,
) -> Result<(), AcquireError> {
    match failure.class {
        // `StatementTimeout`: the table is locked.
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
            if request.wait == Wait::No =>
        {
            let timed_out = failure.class == ErrorClass::LockTimeout;
            Err(AcquireError::Unavailable { timed_out })
        }
        ErrorClass::LockTimeout if !time_is_up && !rolled_back_by_timeout(conn).await? => Ok(()),
        ErrorClass::StatementTimeout if !time_is_up && request.wait != Wait::Forever => Ok(()),
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout => {
            Err(request.timed_out(Some(failure.error)).into())
        }
        _ => Err(failure.into()),
    }
}

/// Whether `innodb_lock_wait_timeout` also ends the transaction and not only the statement
/// (`innodb_rollback_on_timeout`).
pub(in crate::engine::mysql) async fn rolled_back_by_timeout(
    conn: &mut impl Link<Backend = Mysql>,
) -> Result<bool, MysqlError> {
    let set: i64 = RollbackOnTimeout {}.get_result(conn).await?;
    Ok(set == 1)
}

/// Inserts the row and, for a transient lock, deletes it: its index record stays locked until the transaction ends.
/// Returns `false` when it was not inserted and the caller should try again.
pub(super) async fn insert_row(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    id: &ObjectId,
) -> Result<bool, AcquireError> {
    let id = id.as_str().as_bytes();
    let made = sql::insert(id, request.is_kept())
        .execute_cached(conn)
        .await;
    match made {
        Ok(_) => {}
        Err(failure) if failure.is_duplicate() => return Ok(false),
        Err(failure) => {
            after_wait(conn, request, failure, request.is_expired()).await?;
            return Ok(false);
        }
    }
    if !request.is_kept() {
        sql::delete(id).execute(conn).await?;
    }
    Ok(true)
}
