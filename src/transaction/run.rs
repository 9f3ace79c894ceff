//! Runs a closure in a transaction that holds the locks, and ends both together.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use diesel::connection::{AnsiTransactionManager, TransactionManager};

use crate::engine::{Engine, Grant};
use crate::object_lock::acquire::Request;
use crate::object_lock::events;
use crate::transaction::depth::{break_on_panic, depth, mark_closed};
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, TransactionOptions};

/// Takes the locks in the transaction that is open.
pub(crate) fn lock<C: Engine>(
    conn: &mut C,
    method: &'static str,
    request: &Request,
) -> Result<Grant, Error> {
    if depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    let grant = C::assert_open(conn).and_then(|()| C::lock_here(conn, request));
    events::record_outcome(request, grant)
}

/// Opens a transaction, or a savepoint in the one that is open, takes the locks in it, and runs the
/// closure. `None` when the request was not to wait and another holds a lock.
pub(crate) fn run<C, T, E, F>(conn: &mut C, request: &Request, work: F) -> Result<Option<T>, E>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let nested = depth(conn)? > 0;
    let grant = if nested {
        lock_in_savepoint(conn, request)
    } else {
        C::begin_locked(conn, request)
    };
    if events::record_outcome(request, grant)? == Grant::Held {
        return Ok(None);
    }
    let granted = Instant::now();
    let result = commit_or_rollback_at(conn, READ_COMMITTED, work, |_| {
        events::record_released(request, granted.elapsed());
    });
    result.map(Some).map_err(TransactionFailure::into_error)
}

/// Runs the closure in the transaction, or savepoint, that is open, and ends both together.
pub(crate) fn commit_or_rollback<C, T, E, F>(conn: &mut C, work: F) -> Result<T, E>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    commit_or_rollback_at(conn, READ_COMMITTED, work, |_| ())
        .map_err(TransactionFailure::into_error)
}

/// The level of the transactions that hold locks and slots.
const READ_COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);

/// Runs the closure once in a transaction of its own.
pub(crate) fn run_once<C, T, E, F>(
    conn: &mut C,
    transaction: &TransactionOptions,
    work: F,
) -> Result<T, TransactionFailure<E>>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let before = C::begin(conn, transaction).map_err(TransactionFailure::Transaction)?;
    commit_or_rollback_at(conn, transaction.isolation, work, |conn| {
        if let Err(error) = C::restore_session(conn, before) {
            AnsiTransactionManager::transaction_manager_status_mut(conn).set_in_error();
            tracing::warn!(%error, "the connection can't be used any more");
        }
    })
}

/// What a transaction failed with.
pub(crate) enum TransactionFailure<E> {
    /// BEGIN or COMMIT.
    Transaction(Error),
    /// The closure, whose work is rolled back.
    Closure(E),
    /// The closure, when the transaction that it began in was gone: what it did may be committed.
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

/// `level`: of the transaction that this crate has started, if it has said one; not of a savepoint.
fn commit_or_rollback_at<C, T, E, F>(
    conn: &mut C,
    level: Option<IsolationLevel>,
    work: F,
    ended: impl FnOnce(&mut C),
) -> Result<T, TransactionFailure<E>>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let inside = depth(conn).map_err(TransactionFailure::Transaction)?;
    let scope = (inside == 1).then(|| C::enter(conn, level));
    let outcome = catch_unwind(AssertUnwindSafe(|| work(conn)));
    drop(scope);
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

/// Commits the transaction, or releases the savepoint, in which the closure began; rolls back on any error.
fn commit<C: Engine>(conn: &mut C, inside: u32) -> Result<(), Error> {
    let now = depth(conn)?;
    if now != inside {
        roll_back_from(conn, inside);
        return Err(aborted(
            format!(
                "the closure began with {inside} of them open, one in the other, and ended with {now}"
            ),
            None,
        ));
    }
    let ended = if inside == 1 {
        C::commit(conn)
    } else {
        AnsiTransactionManager::commit_transaction(conn).map_err(commit_error)
    };
    ended.map_err(|error| {
        let nothing_committed = roll_back_from(conn, inside);
        if inside > 1 || nothing_committed {
            error
        } else {
            C::after_commit(error)
        }
    })
}

/// The savepoint that a transaction of this crate's begins with, on engines where it tells the transaction
/// apart from others.
pub(crate) const START_SAVEPOINT: &str = "diesel_locks_started";

/// The error of COMMIT or RELEASE. One that names a savepoint says that it is not there, in any language: it
/// has ended with its transaction.
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

const ENDED: &str = "the database has ended it before";

/// The database does not have the transaction any more.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn ended(source: Option<diesel::result::Error>) -> Error {
    aborted(ENDED.to_owned(), source)
}

/// The transaction was gone when its closure failed, and not for that reason.
pub(crate) fn closed_before_failure(reason: RetryReason) -> Error {
    let reason = format!(
        "it had ended before its closure failed ({reason}), and what the closure did may be committed"
    );
    aborted(reason, None)
}

fn aborted(reason: String, source: Option<diesel::result::Error>) -> Error {
    Error::TransactionAborted { reason, source }
}

/// A savepoint in the transaction that is open.
pub(crate) fn begin_savepoint<C: Engine>(conn: &mut C) -> Result<(), Error> {
    C::assert_open(conn)?;
    Ok(AnsiTransactionManager::begin_transaction(conn)?)
}

/// Rolls back what the closure has done, whatever it left open: a panic leaves the transactions open that
/// Diesel's `transaction` has started. `false` when something of it may be committed: the transaction that was started
/// was not there any more.
///
/// The closure's error or panic says more than that of a rollback after it: a connection on which even
/// that fails is lost, the server ends its transaction, and Diesel marks it as broken.
pub(crate) fn roll_back_from<C: Engine>(conn: &mut C, inside: u32) -> bool {
    let mut rolled_back = false;
    while let Ok(now) = depth(conn)
        && now >= inside.max(2)
    {
        let result = AnsiTransactionManager::rollback_transaction(conn);
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
        // Also of a transaction of which Diesel does not know, as it was begun by a statement of text.
        Ok(_) if depth(conn).is_ok() => mark_closed(conn),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "rollback failed");
            AnsiTransactionManager::transaction_manager_status_mut(conn).set_in_error();
        }
    }
    result.unwrap_or(false)
}

/// Rolls back the innermost transaction.
pub(crate) fn roll_back<C: Engine>(conn: &mut C) {
    if let Ok(now) = depth(conn) {
        roll_back_from(conn, now);
    }
}

/// Inside the savepoint, so that its rollback frees the lock where the engine allows it.
fn lock_in_savepoint<C: Engine>(conn: &mut C, request: &Request) -> Result<Grant, Error> {
    begin_savepoint(conn)?;
    let grant = C::lock_here(conn, request);
    if !matches!(grant, Ok(Grant::Locked)) {
        roll_back(conn);
    }
    grant
}
