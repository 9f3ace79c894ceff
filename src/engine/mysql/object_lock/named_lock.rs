//! Acquires the named lock under which one session at a time inserts the row of an id.

use diesel::mysql::Mysql;

use super::error::AcquireError;
use super::row::{MIN_LIMIT_MS, insert_row, lock_row};
use crate::engine::mysql::execute::{MysqlError, Run, within};
use crate::engine::mysql::sql::object_lock::{AcquireNamedLock, ReleaseNamedLock};
use crate::engine::mysql::{session, writers};
use crate::error::classify::ErrorClass;
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::{Error, ObjectId, Wait};

/// The time in seconds that a transaction that may hold other locks waits for a named lock per attempt.
const NAMED_LOCK_TIMEOUT: i32 = 1;

/// Locks or inserts the row under the named lock. `holds_no_locks`: the transaction holds no locks yet, so it can't be part of a deadlock.
pub(super) async fn acquire_with_named_lock(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    id: &ObjectId,
    holds_no_locks: bool,
) -> Result<(), AcquireError> {
    loop {
        if acquire_named_lock(conn, request, id, holds_no_locks).await? {
            let locked = lock_or_insert_row(conn, request, id).await;
            release_named_lock(conn, id).await?;
            return locked;
        }
        if lock_row(conn, request, id).await?.is_some() {
            return Ok(());
        }
        // After waiting for a row that was then deleted, this session still has its index record locked, and the holder
        // of the named lock waits for it. If no session has the record locked, two inserts may deadlock, which InnoDB
        // resolves.
        if insert_row(conn, request, id).await? {
            return Ok(());
        }
    }
}

/// Called under the named lock, where no other session inserts a row of this id.
async fn lock_or_insert_row(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    id: &ObjectId,
) -> Result<(), AcquireError> {
    while lock_row(conn, request, id).await?.is_none() {
        if insert_row(conn, request, id).await? {
            break;
        }
    }
    Ok(())
}

/// Acquires the named lock. Returns `false` when the transaction should wait for the row instead.
async fn acquire_named_lock(
    conn: &mut impl Link<Backend = Mysql>,
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
        let taken: Result<(Option<i64>, i64), MysqlError> = within!(
            conn,
            limit,
            AcquireNamedLock { id: name, seconds }.get_result(conn)
        );
        let error = match taken {
            Ok((taken, unknown)) => {
                let one_writer = writers::ensure_one(conn, unknown == 1).await;
                if one_writer.is_err() && taken == Some(1) {
                    release_named_lock(conn, id).await?;
                }
                one_writer?;
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
                if failure.is_interrupted() {
                    // It may have acquired the named lock.
                    release_named_lock(conn, id).await?;
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

pub(super) async fn release_named_lock(
    conn: &mut impl Link<Backend = Mysql>,
    id: &ObjectId,
) -> Result<(), AcquireError> {
    let id = id.as_str().as_bytes();
    session::restore(conn, &ReleaseNamedLock { id })
        .await
        .map_err(Error::from)?;
    Ok(())
}
