//! Runs a transaction again after an error that a retry may cure.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::acts::closures::RepeatedWork;
use crate::acts::events;
use crate::acts::object_lock;
use crate::acts::transaction::{TransactionFailure, outermost, run_once};
use crate::engine::HasEngine;
use crate::engine::ending::aborted;
use crate::link::depth::{depth, mark_broken};
use crate::rt;
use crate::values::lock_request::Request;
use crate::values::retry_policy::{Retries, RetryReason};
use crate::values::transaction_options::Access;
use crate::{Error, TransactionError, TransactionOptions, TransactionRequest};

/// Runs the closure in a transaction, and again after an error that a retry may cure.
pub(crate) async fn run_attempts<C, T, E, F, Via>(
    conn: &mut C,
    transaction: TransactionRequest,
    mut work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: RepeatedWork<&'r mut C, Result<T, E>>,
    E: TransactionError<Via>,
{
    let mut retries = Retries::new(transaction.options.retry, false)?;
    loop {
        match attempt(conn, &transaction, &mut retries, &mut work, || ()).await? {
            ControlFlow::Break(value) => return Ok(value),
            ControlFlow::Continue(pause) => rt::pause(pause).await,
        }
    }
}

/// Runs the closure in a transaction once. Returns the pause before the next attempt, if there is one: with another connection
/// after this one was lost. Calls `is_begun` before the closure of a transaction without locks.
pub(crate) async fn attempt<C, T, E, F, Via>(
    conn: &mut C,
    transaction: &TransactionRequest,
    retries: &mut Retries,
    work: &mut F,
    is_begun: impl FnOnce(),
) -> Result<ControlFlow<T, Duration>, E>
where
    C: HasEngine,
    for<'r> F: RepeatedWork<&'r mut C, Result<T, E>>,
    E: TransactionError<Via>,
{
    let options = &transaction.options;
    let mut engine = C::engine(conn)?;
    engine.validate(options)?;
    outermost(&mut *engine)?;
    drop(engine);
    let ran = match &transaction.lock {
        None => run_once(conn, options, work, is_begun).await,
        Some(lock) => {
            let request = Request::new(lock.clone())?;
            let ran = object_lock::run_begun(conn, &request, work).await;
            ran.and_then(|done| {
                done.ok_or_else(|| TransactionFailure::Transaction(request.unavailable()))
            })
        }
    };
    after_attempt(conn, options, retries, ran).await
}

/// The outcome of an attempt: the value, or the pause before the next one.
pub(crate) async fn after_attempt<C, T, E, Via>(
    conn: &mut C,
    options: &TransactionOptions,
    retries: &mut Retries,
    ran: Result<T, TransactionFailure<E>>,
) -> Result<ControlFlow<T, Duration>, E>
where
    C: HasEngine,
    E: TransactionError<Via>,
{
    let failed = match ran {
        Ok(value) => return Ok(ControlFlow::Break(value)),
        Err(failed) => failed,
    };
    let reason = match &failed {
        TransactionFailure::Transaction(error) => RetryReason::from_crate_error(error),
        TransactionFailure::Closure(error) | TransactionFailure::ClosureAfterEnd(error) => {
            error.database_error().and_then(RetryReason::find)
        }
    };
    let applies = |reason: &RetryReason| match reason {
        RetryReason::ReadOnly if options.access == Some(Access::ReadOnly) => false,
        reason => retries.applies_to(*reason),
    };
    let Some(reason) = reason.filter(applies) else {
        let untracked = matches!(
            failed,
            TransactionFailure::Transaction(Error::UntrackedTransaction { .. })
        );
        if untracked
            && retries.on_a_pool
            && let Ok(mut engine) = C::engine(conn)
        {
            mark_broken(engine.status());
        }
        return Err(failed.into_error());
    };
    // A wrapper that has changed its inner connection.
    let Ok(mut engine) = C::engine(conn) else {
        return Err(failed.into_error());
    };
    let engine = &mut *engine;
    let usable = depth(engine.status()).is_ok_and(|depth| depth == 0);
    let is_replaced = matches!(reason, RetryReason::ConnectionLost | RetryReason::ReadOnly);
    let repeatable = match &failed {
        // On a connection whose rollback failed nothing can be run again.
        _ if !usable => retries.on_a_pool,
        TransactionFailure::Transaction(_) => true,
        // That of another connection, on which the closure may have committed.
        _ if reason == RetryReason::ConnectionLost => false,
        TransactionFailure::Closure(_) => true,
        TransactionFailure::ClosureAfterEnd(_) => {
            let may_end =
                !is_replaced && engine.may_end_transactions(reason).await.unwrap_or(false);
            if !may_end {
                let reason = format!(
                    "it had ended before its closure failed ({reason}), and the writes of the closure may be committed"
                );
                return Err(aborted(reason, None).into());
            }
            true
        }
    };
    if repeatable && (is_replaced || !usable) {
        mark_broken(engine.status());
    }
    let Some(pause) = repeatable.then(|| next_pause(retries, reason)).flatten() else {
        return Err(failed.into_error());
    };
    if usable && !is_replaced {
        engine.prepare_retry();
    }
    Ok(ControlFlow::Continue(pause))
}

/// Returns the pause before the next attempt, if there is one, and records it.
pub(crate) fn next_pause(retries: &mut Retries, reason: RetryReason) -> Option<Duration> {
    let number = retries.number();
    let pause = retries.pause()?;
    events::record_retry(reason, number, pause);
    Some(pause)
}
