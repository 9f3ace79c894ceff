//! Begins transactions, with locks and a first query in the same message.

use std::marker::PhantomData;

use diesel::QueryResult;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};

use super::{ids, is_wait_timeout, map_error, sql, try_outcome};
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::LockOutcome;
use crate::poll::caught;
use crate::{Error, transaction::depth};

/// What is sent with BEGIN and the locks.
pub(super) trait Beginning<C> {
    type Value;

    fn send(
        &self,
        conn: &mut C,
        batch: &str,
    ) -> impl Future<Output = QueryResult<Self::Value>> + Send;
}

/// Nothing.
pub(super) struct Alone;

impl<C: Link<Backend = Pg>> Beginning<C> for Alone {
    type Value = ();

    async fn send(&self, conn: &mut C, batch: &str) -> QueryResult<()> {
        conn.begin(batch).await
    }
}

/// A query, whose rows or error is the value.
pub(super) struct WithQuery<'a, Q, T>(pub(super) &'a Q, pub(super) PhantomData<fn() -> T>);

impl<C, Q, T> Beginning<C> for WithQuery<'_, Q, T>
where
    C: Link<Backend = Pg>,
    Q: Query + QueryFragment<Pg> + QueryId + Send + Sync,
    Pg: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Pg> + Send,
{
    type Value = QueryResult<Vec<T>>;

    async fn send(&self, conn: &mut C, batch: &str) -> QueryResult<Self::Value> {
        conn.begin_and_load(batch, self.0).await
    }
}

/// Begins a transaction and waits for the locks. Restarts it after a deadlock: it has not run the closure yet.
pub(super) async fn begin_and_acquire<C, B>(
    conn: &mut C,
    request: &Request,
    beginning: &B,
) -> Result<B::Value, Error>
where
    C: Link<Backend = Pg>,
    B: Beginning<C>,
{
    loop {
        let time_is_up = request.is_expired();
        match begin_by(conn, beginning, &sql::begin_and_acquire(request)).await {
            Ok(value) => return Ok(value),
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
    let trying = WithQuery(&try_acquire, PhantomData);
    loop {
        let tried = match begin_by(conn, &trying, sql::BEGIN).await {
            Ok(answers) => {
                let outcome = try_outcome(request, answers);
                if !matches!(outcome, Ok(LockOutcome::Acquired)) {
                    conn.roll_back().await?;
                }
                outcome
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

pub(super) async fn begin(conn: &mut impl Link<Backend = Pg>, batch: &str) -> QueryResult<()> {
    begin_by(conn, &Alone, batch).await
}

/// Sends a batch that starts with BEGIN. If a later statement of the batch fails, a transaction is open that Diesel
/// does not know of, so this ends it. If that fails too, or the application's instrumentation panics, the connection is
/// marked as broken.
async fn begin_by<C, B>(conn: &mut C, beginning: &B, batch: &str) -> QueryResult<B::Value>
where
    C: Link<Backend = Pg>,
    B: Beginning<C>,
{
    let started = caught(beginning.send(conn, batch)).await;
    let started = depth::break_if_panicked(conn, started);
    if started.is_err() {
        let ended = caught(conn.batch("ROLLBACK")).await;
        if depth::break_if_panicked(conn, ended).is_err() {
            depth::mark_broken(conn);
        }
    }
    started
}
