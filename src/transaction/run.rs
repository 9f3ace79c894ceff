//! Runs a closure in a transaction of this crate, and ends the transaction.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::transaction::backend::TransactionBackend;
use crate::transaction::depth::{break_on_panic, depth, mark_broken, mark_closed};
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, TransactionOptions};

/// Runs the closure in the open transaction or savepoint, and commits it or rolls it back.
pub(crate) fn commit_or_rollback<C, T, E, F>(conn: &mut C, work: F) -> Result<T, E>
where
    C: TransactionBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    commit_or_rollback_then(conn, work, || ())
}

/// [`commit_or_rollback`] that calls `ended` after the end of the transaction, also when the closure panics.
pub(crate) fn commit_or_rollback_then<C, T, E, F>(
    conn: &mut C,
    work: F,
    ended: impl FnOnce(),
) -> Result<T, E>
where
    C: TransactionBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    commit_or_rollback_at(conn, READ_COMMITTED, work, |_| ended())
        .map_err(TransactionFailure::into_error)
}

/// The isolation level of transactions that hold locks and slots.
const READ_COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);

/// Runs the closure once, in a transaction of its own.
pub(crate) fn run_once<C, T, E, F>(
    conn: &mut C,
    transaction: &TransactionOptions,
    work: F,
) -> Result<T, TransactionFailure<E>>
where
    C: TransactionBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let change = C::begin(conn, transaction).map_err(TransactionFailure::Transaction)?;
    commit_or_rollback_at(conn, transaction.isolation, work, |conn| {
        if let Err(error) = C::restore_session(conn, change) {
            mark_broken(conn);
            tracing::warn!(%error, "the connection is marked as broken");
        }
    })
}

/// Why a transaction failed.
pub(crate) enum TransactionFailure<E> {
    /// BEGIN or COMMIT failed.
    Transaction(Error),
    /// The closure failed, and its writes are rolled back.
    Closure(E),
    /// The closure failed after its transaction had ended: its writes may be committed.
    ClosureAfterEnd(E),
}

impl<E: From<Error>> TransactionFailure<E> {
    pub(crate) fn into_error(self) -> E {
        match self {
            Self::Transaction(error) => error.into(),
            Self::Closure(error) | Self::ClosureAfterEnd(error) => error,
        }
    }
}

/// Runs the closure and ends the transaction. `level` is the isolation level that this crate has set for the
/// transaction, if any; it is ignored in a savepoint.
fn commit_or_rollback_at<C, T, E, F>(
    conn: &mut C,
    level: Option<IsolationLevel>,
    work: F,
    ended: impl FnOnce(&mut C),
) -> Result<T, TransactionFailure<E>>
where
    C: TransactionBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let inside = depth(conn).map_err(TransactionFailure::Transaction)?;
    if inside == 0 {
        // A wrapper that has begun the transaction on another connection than the one that it returns now.
        let reason = "the connection has no open transaction after BEGIN".to_owned();
        return Err(TransactionFailure::Transaction(aborted(reason, None)));
    }
    let mark = (inside == 1).then(|| C::mark_isolation(conn, level));
    let outcome = catch_unwind(AssertUnwindSafe(|| work(conn)));
    drop(mark);
    let result = match outcome {
        Ok(Ok(value)) => match commit(conn, inside) {
            Ok(()) => Ok(value),
            Err(error) => Err(TransactionFailure::Transaction(error)),
        },
        Ok(Err(error)) => Err(if roll_back_from(conn, inside) {
            TransactionFailure::Closure(error)
        } else {
            TransactionFailure::ClosureAfterEnd(error)
        }),
        Err(panic) => {
            roll_back_from(conn, inside);
            ended(conn);
            resume_unwind(panic)
        }
    };
    ended(conn);
    result
}

/// Commits the transaction, or releases the savepoint, in which the closure started. Rolls back on any error.
fn commit<C: TransactionBackend>(conn: &mut C, inside: u32) -> Result<(), Error> {
    let now = depth(conn)?;
    if now != inside {
        roll_back_from(conn, inside);
        return Err(aborted(
            format!(
                "the closure started with {inside} nested transactions open, and ended with {now}"
            ),
            None,
        ));
    }
    let ended = if inside == 1 {
        C::commit(conn)
    } else {
        C::release_savepoint(conn).map_err(commit_error)
    };
    ended.map_err(|error| {
        let nothing_committed = roll_back_from(conn, inside);
        if inside > 1 || nothing_committed {
            error
        } else {
            C::map_commit_error(conn, error)
        }
    })
}

/// The savepoint with which a transaction of this crate starts on MySQL and SQLite, where it distinguishes the
/// transaction from others.
pub(crate) const START_SAVEPOINT: &str = "diesel_locks_started";

/// Maps an error of COMMIT or RELEASE. An error that names a savepoint, in any language, means that the savepoint does
/// not exist, because the database has already ended its transaction.
pub(crate) fn commit_error(error: diesel::result::Error) -> Error {
    if let diesel::result::Error::DatabaseError(_, information) = &error
        && [START_SAVEPOINT, "diesel_savepoint_"]
            .iter()
            .any(|savepoint| information.message().contains(savepoint))
    {
        return aborted(ENDED.to_owned(), Some(error));
    }
    error.into()
}

const ENDED: &str = "the database has already ended it";

/// The error for a transaction that the database has already ended.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn ended(source: Option<diesel::result::Error>) -> Error {
    aborted(ENDED.to_owned(), source)
}

/// The error for a transaction that had ended before its closure failed, and for another reason.
pub(crate) fn closed_before_failure(reason: RetryReason) -> Error {
    let reason = format!(
        "it had ended before its closure failed ({reason}), and the writes of the closure may be committed"
    );
    aborted(reason, None)
}

fn aborted(reason: String, source: Option<diesel::result::Error>) -> Error {
    Error::TransactionAborted { reason, source }
}

/// Starts a savepoint in the open transaction.
pub(crate) fn begin_savepoint<C: TransactionBackend>(conn: &mut C) -> Result<(), Error> {
    C::assert_open(conn)?;
    Ok(C::begin_savepoint(conn)?)
}

/// Rolls back the closure's work, including nested transactions that it has left open: a panic leaves those open that
/// Diesel's `transaction` has started. Returns `false` when part of the work may be committed, because the transaction
/// that this crate has started had already ended.
///
/// Does not return the error of a rollback, because the closure's error or panic takes precedence. If a rollback fails,
/// the connection is lost: the server ends its transaction, and the connection is marked as broken.
pub(crate) fn roll_back_from<C: TransactionBackend>(conn: &mut C, inside: u32) -> bool {
    let mut rolled_back = false;
    while let Ok(now) = depth(conn)
        && now >= inside.max(2)
    {
        let result = C::roll_back_to_savepoint(conn);
        rolled_back = result.is_ok();
        if let Err(error) = result {
            tracing::warn!(%error, "rollback failed");
            if depth(conn).is_ok_and(|after| after >= now) {
                break;
            }
        }
    }
    if inside > 1 {
        return rolled_back;
    }
    let result = break_on_panic(conn, C::roll_back);
    match &result {
        // Also when Diesel does not know of the transaction, because the application has started it by its own SQL.
        Ok(_) if depth(conn).is_ok() => mark_closed(conn),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "rollback failed");
            mark_broken(conn);
        }
    }
    result.unwrap_or(false)
}

/// Rolls back the innermost transaction.
pub(crate) fn roll_back<C: TransactionBackend>(conn: &mut C) {
    if let Ok(now) = depth(conn) {
        roll_back_from(conn, now);
    }
}
