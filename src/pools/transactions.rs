//! Runs transactions with connections of a pool, and again with another one after their connection was lost.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::closures::RepeatedWork;
use crate::acts::transaction;
use crate::acts::waiting::Waiting;
use crate::error::limits::LONGEST_WAIT;
use crate::link::depth::counted;
use crate::pools::Connections;
use crate::pools::lender::Lender;
use crate::rt::stop_token::{StopToken, stop_or_end};
use crate::values::retry_policy::{Attempts, RetryReason};
use crate::{TransactionError, TransactionOptions, Wait};

/// Runs the closure in a transaction, and again after an error that a retry may cure. Borrows no connection between attempts.
pub(crate) async fn run<L, T, E, F, Via>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    transaction: TransactionOptions,
    mut work: F,
) -> Result<T, E>
where
    L: Lender,
    for<'r> F: RepeatedWork<&'r mut L::Connection, Result<T, E>>,
    E: TransactionError<Via>,
{
    let mut attempts = Attempts::new(transaction.retry, true)?;
    let limit = attempts.max_elapsed().min(LONGEST_WAIT);
    let waiting = Waiting::new(Wait::AtMost(limit), "a connection".to_owned())?.stopped_by(stop);
    let mut is_lost = false;
    loop {
        let pause = match connections.borrow(&waiting).await {
            Ok(mut conn) => {
                let attempt = unless_dropped!(&mut *conn, |conn| transaction::attempt(
                    conn,
                    &transaction,
                    &mut attempts,
                    &mut work
                ));
                let pause = match attempt? {
                    ControlFlow::Break(value) => return Ok(value),
                    ControlFlow::Continue(pause) => pause,
                };
                is_lost = counted(conn.engine()?.status()).is_err();
                pause
            }
            // A fail-over may take longer than the pool waits for a connection.
            Err(error) if is_lost && error.has_no_connection_yet() => {
                transaction::next_pause(&mut attempts, RetryReason::ConnectionLost).ok_or(error)?
            }
            Err(error) => return Err(error.into()),
        };
        stop_or_end(stop, Instant::now().checked_add(pause)).await;
    }
}
