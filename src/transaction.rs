//! Runs a closure in a transaction that holds the locks, and ends both together.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::connection::{AnsiTransactionManager, TransactionManager};

use crate::engine::{Engine, Grant};
use crate::events;
use crate::nesting::depth;
use crate::request::Request;
use crate::{Error, Isolation, Transaction};

/// Takes the locks in the transaction that is open.
pub(crate) fn lock<C: Engine>(
    conn: &mut C,
    method: &'static str,
    request: &Request,
) -> Result<Grant, Error> {
    if depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    events::told(request, C::lock_here(conn, request))
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
    if events::told(request, grant)? == Grant::Held {
        return Ok(None);
    }
    let level = (!nested).then_some(Isolation::ReadCommitted);
    let result = finish_in(conn, level, work, |_| events::freed(request));
    result.map(Some).map_err(Failed::into_error)
}

/// Runs the closure in the transaction, or savepoint, that is open, and ends both together.
pub(crate) fn finish<C, T, E, F>(conn: &mut C, work: F) -> Result<T, E>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let outermost = depth(conn)? == 1;
    let level = outermost.then_some(Isolation::ReadCommitted);
    finish_in(conn, level, work, |_| ()).map_err(Failed::into_error)
}

/// Runs the closure once in a transaction of its own.
pub(crate) fn attempt<C, T, E, F>(
    conn: &mut C,
    transaction: &Transaction,
    work: F,
) -> Result<T, Failed<E>>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let before = C::begin(conn, transaction).map_err(Failed::Around)?;
    finish_in(conn, transaction.isolation, work, |conn| {
        if let Err(error) = C::set_back(conn, before) {
            AnsiTransactionManager::transaction_manager_status_mut(conn).set_in_error();
            tracing::warn!(%error, "the connection can't be used any more");
        }
    })
}

/// What a transaction failed with.
pub(crate) enum Failed<E> {
    /// BEGIN or COMMIT.
    Around(Error),
    /// The closure.
    Inside(E),
}

impl<E: From<Error>> Failed<E> {
    pub(crate) fn into_error(self) -> E {
        match self {
            Self::Around(error) => error.into(),
            Self::Inside(error) => error,
        }
    }
}

/// `level`: of the transaction, when this crate has begun it and said so.
fn finish_in<C, T, E, F>(
    conn: &mut C,
    level: Option<Isolation>,
    work: F,
    ended: impl FnOnce(&mut C),
) -> Result<T, Failed<E>>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let scope = level.map(|level| C::enter(conn, level));
    let outcome = catch_unwind(AssertUnwindSafe(|| work(conn)));
    drop(scope);
    let result = match outcome {
        Ok(Ok(value)) => match AnsiTransactionManager::commit_transaction(conn) {
            Ok(()) => Ok(value),
            Err(error) => Err(Failed::Around(error.into())),
        },
        Ok(Err(error)) => {
            roll_back(conn);
            Err(Failed::Inside(error))
        }
        Err(panic) => {
            roll_back(conn);
            ended(conn);
            resume_unwind(panic)
        }
    };
    ended(conn);
    result
}

/// A savepoint in the transaction that is open.
pub(crate) fn begin_savepoint<C: Engine>(conn: &mut C) -> Result<(), Error> {
    Ok(AnsiTransactionManager::begin_transaction(conn)?)
}

/// The closure's error or panic says more than that of a rollback after it: a connection on which even
/// that fails is lost, the server ends its transaction, and Diesel marks it as broken.
pub(crate) fn roll_back<C: Engine>(conn: &mut C) {
    if let Err(error) = AnsiTransactionManager::rollback_transaction(conn) {
        tracing::warn!(%error, "rollback failed; the connection can't be used any more");
    }
}

/// Inside the savepoint, so that its rollback frees the lock where the engine allows it.
fn lock_in_savepoint<C: Engine>(conn: &mut C, request: &Request) -> Result<Grant, Error> {
    AnsiTransactionManager::begin_transaction(conn)?;
    let grant = C::lock_here(conn, request);
    if !matches!(grant, Ok(Grant::Locked)) {
        roll_back(conn);
    }
    grant
}
