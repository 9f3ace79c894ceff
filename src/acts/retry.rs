//! Runs a closure in a transaction, and again after an error that a retry may cure.

use crate::acts::administration::outside;
use crate::acts::events;
use crate::acts::transaction;
use crate::acts::transaction::TransactionFailure;
use crate::acts::work::RepeatedWork;
use crate::engine::HasEngine;
use crate::link::depth;
use crate::rt;
use crate::values::retry_policy::{Attempts, RetryReason};
use crate::{RetryPolicy, TransactionError, TransactionOptions};

pub(crate) async fn run_attempts<C, T, E, F, Via>(
    conn: &mut C,
    transaction: TransactionOptions,
    mut work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: RepeatedWork<&'r mut C, Result<T, E>>,
    E: TransactionError<Via>,
{
    let retry = transaction.retry.unwrap_or(RetryPolicy::max_attempts(1));
    retry.validate()?;
    let mut engine = C::engine(conn)?;
    engine.validate(&transaction)?;
    let reason = "its isolation level is set, and its earlier statements can't be retried; \
                  Diesel's transaction opens a savepoint";
    outside(&mut *engine, "run_transaction", reason)?;
    drop(engine);
    let mut attempts = Attempts::new(retry);
    loop {
        let number = attempts.number();
        let failed = match transaction::run_once(conn, &transaction, &mut work).await {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        let reason = match &failed {
            TransactionFailure::Transaction(error) => RetryReason::from_crate_error(error),
            TransactionFailure::Closure(error) | TransactionFailure::ClosureAfterEnd(error) => {
                error.database_error().and_then(RetryReason::find)
            }
        };
        // A connection whose rollback failed can't retry.
        let Ok(mut engine) = C::engine(conn) else {
            return Err(failed.into_error());
        };
        let usable = depth::depth(engine.status()).is_ok_and(|depth| depth == 0);
        if let TransactionFailure::ClosureAfterEnd(_) = &failed
            && let Some(reason) = reason.filter(|reason| retry.applies_to(*reason))
            && usable
            && !engine.may_end_transactions(reason).await.unwrap_or(false)
        {
            return Err(transaction::closed_before_failure(reason).into());
        }
        let pause = reason
            .filter(|_| usable)
            .and_then(|reason| Some((reason, attempts.pause_after(reason)?)));
        let Some((reason, pause)) = pause else {
            return Err(failed.into_error());
        };
        engine.prepare_retry();
        drop(engine);
        events::record_retry(reason, number, pause);
        rt::pause(pause).await;
    }
}
