//! Begins transactions, with locks in the same message.

use std::thread;

use diesel::QueryResult;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};

use super::untracked::untracked;
use super::{ids, is_wait_timeout, map_error, sql, try_outcome};
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::LockOutcome;
use crate::poll::caught;
use crate::{Error, transaction::depth};

/// Begins a transaction and waits for the locks. Restarts it after a deadlock: it has not run the closure yet.
pub(super) async fn begin_and_acquire(
    conn: &mut impl Link<Backend = Pg>,
    request: &Request,
) -> Result<(), Error> {
    loop {
        let time_is_up = request.is_expired();
        match begin(conn, &sql::begin_and_acquire(request)).await {
            Ok(()) => return Ok(()),
            Err(error) if classify(&error) == ErrorClass::Deadlock => {}
            Err(error) if is_wait_timeout(request, &error) && !time_is_up => {}
            Err(error) => return Err(map_error(request, error)),
        }
    }
}

/// Begins a transaction and tries to acquire the locks. Restarts it after a deadlock. An asynchronous connection sends both
/// at once.
pub(super) async fn begin_and_try(
    conn: &mut impl Link<Backend = Pg>,
    request: &Request,
) -> Result<LockOutcome, Error> {
    let try_acquire = sql::try_acquire(ids(request), request.is_kept());
    loop {
        let tried = match begin_and_load(conn, &try_acquire).await {
            Ok(answers) => {
                let outcome = try_outcome(request, answers);
                if matches!(outcome, Ok(LockOutcome::Acquired)) {
                    outcome
                } else {
                    let rolled_back = conn.roll_back().await;
                    outcome.and_then(|outcome| rolled_back.map(|()| outcome))
                }
            }
            Err(error) => Err(error),
        };
        match tried {
            Ok(outcome) => return Ok(outcome),
            Err(error) if classify(&error) == ErrorClass::Deadlock => {}
            Err(error) => return Err(map_error(request, error)),
        }
    }
}

/// Begins a transaction by a batch that starts with BEGIN.
pub(super) async fn begin(conn: &mut impl Link<Backend = Pg>, batch: &str) -> QueryResult<()> {
    let started = caught(conn.begin(batch)).await;
    begun(conn, started).await
}

/// Begins a transaction, and runs a query in it.
async fn begin_and_load<C, Q, T>(conn: &mut C, query: &Q) -> QueryResult<QueryResult<Vec<T>>>
where
    C: Link<Backend = Pg>,
    Q: Query + QueryFragment<Pg> + QueryId + Send + Sync,
    Pg: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Pg> + Send,
{
    let started = caught(conn.begin_and_load(sql::BEGIN, query)).await;
    begun(conn, started).await
}

/// If a statement of the batch after BEGIN has failed, a transaction is open that Diesel does not know of, so this ends it,
/// unless it is the application's. If that fails too, or the application's instrumentation panics, the connection is marked
/// as broken.
async fn begun<T>(
    conn: &mut impl Link<Backend = Pg>,
    started: thread::Result<QueryResult<T>>,
) -> QueryResult<T> {
    let started = depth::break_if_panicked(conn, started);
    let error = match started {
        Ok(value) => return Ok(value),
        Err(error) => untracked(error),
    };
    let error = match error {
        Ok(untracked) => return Err(untracked.into()),
        Err(error) => error,
    };
    let ended = caught(conn.batch("ROLLBACK")).await;
    if depth::break_if_panicked(conn, ended).is_err() {
        depth::mark_broken(conn);
    }
    Err(error)
}
