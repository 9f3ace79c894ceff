//! Acquires the named lock under which one session at a time inserts the row of an id.

use diesel::mysql::Mysql;

use super::error::AcquireError;
use super::row::{MIN_LIMIT_MS, Target, insert_row, lock_row};
use crate::engine::mysql::execute::{MysqlError, Run, within};
use crate::engine::mysql::sql::object_lock::{AcquireNamedLock, ReleaseNamedLock};
use crate::engine::mysql::{session, writers};
use crate::error::classify::ErrorClass;
use crate::link::Link;
use crate::{ObjectId, Wait};

/// The time in seconds that a transaction that may hold other locks waits for a named lock per attempt.
const NAMED_LOCK_TIMEOUT: i32 = 1;

/// Locks or inserts the row under the named lock.
pub(super) async fn acquire_with_named_lock(
    conn: &mut impl Link<Backend = Mysql>,
    target: Target<'_>,
) -> Result<(), AcquireError> {
    loop {
        if acquire_named_lock(conn, target).await? {
            let locked = lock_or_insert_row(conn, target).await;
            let released = release_named_lock(conn, target.id).await;
            // The first error takes precedence.
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
    conn: &mut impl Link<Backend = Mysql>,
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
    conn: &mut impl Link<Backend = Mysql>,
    target: Target<'_>,
) -> Result<bool, AcquireError> {
    let Target {
        request,
        id,
        holds_nothing,
    } = target;
    let name = id.as_str().as_bytes();
    loop {
        let (seconds, limit) = match request.remaining_millis() {
            Some(0) => (0, None),
            left => (
                if holds_nothing {
                    i32::MAX
                } else {
                    NAMED_LOCK_TIMEOUT
                },
                left.map(|left| left.max(MIN_LIMIT_MS)),
            ),
        };
        let taken: Result<(Option<i64>, i64), MysqlError> = within!(
            conn,
            limit,
            AcquireNamedLock { id: name, seconds }.get_result(conn)
        );
        let error = match taken {
            Ok((taken, unknown)) => {
                if let Err(error) = writers::ensure_one(conn, unknown == 1).await {
                    if taken == Some(1) {
                        let _ = release_named_lock(conn, id).await;
                    }
                    return Err(AcquireError::failed(error));
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
                    return Err(AcquireError::failed(failure));
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

pub(super) async fn release_named_lock(
    conn: &mut impl Link<Backend = Mysql>,
    id: &ObjectId,
) -> Result<(), AcquireError> {
    let id = id.as_str().as_bytes();
    session::restore(conn, &ReleaseNamedLock { id })
        .await
        .map_err(AcquireError::failed)
}
