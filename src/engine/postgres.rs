//! PostgreSQL: a transient lock is the insert of a row, a kept lock the advisory lock of a row. Functions acquire both
//! (`migrations/postgres`).

mod held_locks;
mod migrations;
mod protection;
mod slot_sql;
mod slots;
mod sql;

use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;
use diesel::pg::Pg;
use diesel::prelude::QueryDsl;
use diesel::result::DatabaseErrorKind;

use crate::engine::migration_runner::SqlMigration;
use crate::engine::postgres::protection::ensure_visible;
use crate::engine::postgres::sql::texts;
use crate::engine::sequence_queries::{
    DrawRequest, SequenceRow, Upsert, assert_exhausted, last_drawn, list_sequences,
};
use crate::engine::tables::{
    Named, OBJECTS, SEQUENCES, WANTED_US, diesel_locks_sequences as sequences, in_range, protected,
};
use crate::engine::{Engine, ending, has_engine};
use crate::error::classify::{ErrorClass, classify};
use crate::link::raw_sql::untracked;
use crate::link::{self, Link, Savepoint, depth};
use crate::rt::caught;
use crate::values::held_object_lock::HeldObjectLock;
use crate::values::list_options::ListRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, Sequence, TransactionOptions, Wait};

/// The rows that one transaction of a purge deletes. Each takes an entry in the server's lock table, by default of 6400.
const PURGE_BATCH: u16 = 100;

pub(crate) struct PostgresEngine<'c, C>(pub(crate) &'c mut C);

#[cfg(feature = "postgres")]
has_engine!(HasBlockingEngine: diesel::PgConnection, PostgresEngine, in_process: false);
#[cfg(feature = "async-postgres")]
has_engine!(async diesel_async::AsyncPgConnection, PostgresEngine, in_process: false);

#[async_trait]
impl<C: Link<Db = Pg>> Engine for PostgresEngine<'_, C> {
    fn status(&mut self) -> &mut TransactionManagerStatus {
        self.0.status()
    }

    async fn savepoint(&mut self, act: Savepoint) -> Result<(), diesel::result::Error> {
        link::savepoint(self.0, act).await
    }

    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<bool, Error> {
        begin(self.0, &sql::begin(transaction)).await?;
        Ok(false)
    }

    async fn assert_open(&mut self) -> Result<(), Error> {
        if C::IS_OF_DIESEL {
            return Ok(());
        }
        let outcome = self.0.batch(ending::ASSERT_OPEN).await;
        outcome.map_err(|error| match &error {
            diesel::result::Error::DatabaseError(DatabaseErrorKind::Unknown, _)
                if classify(&error) == ErrorClass::Other =>
            {
                ending::ended(Some(error))
            }
            _ => error.into(),
        })
    }

    async fn commit(&mut self) -> Result<(), Error> {
        let conn = &mut *self.0;
        let committed = caught(conn.batch(&sql::COMMIT)).await;
        let Err(error) = depth::break_if_panicked(conn.status(), committed) else {
            depth::mark_closed(conn.status());
            return Ok(());
        };
        // COMMIT ends the transaction even when it fails. So if the transaction is still open, the error is that of the
        // statement before it. If the closure has ended the transaction without beginning another, only a client that knows
        // the server's state has noticed that before: otherwise the text decides.
        let not_ours = match classify(&error) {
            ErrorClass::TransactionAborted => is_open_after_error(conn).await,
            ErrorClass::Other if sql::names_mark(&error.to_string()) => {
                !C::IS_OF_DIESEL || is_open_after_error(conn).await
            }
            _ => false,
        };
        if not_ours {
            return Err(ending::ended(Some(error)));
        }
        Err(error.into())
    }

    /// COMMIT was sent, and its answer was not received.
    fn map_commit_error(&self, error: Error) -> Error {
        match error {
            Error::Database(source) if classify(&source) == ErrorClass::ConnectionLost => {
                Error::OutcomeUnknown { source }
            }
            error => error,
        }
    }

    async fn roll_back(&mut self) -> Result<bool, diesel::result::Error> {
        let conn = &mut *self.0;
        if depth::counted(conn.status()).is_ok_and(|depth| depth == 0) {
            conn.batch("ROLLBACK").await?;
            return Ok(false);
        }
        // An aborted transaction runs no statement that could check it. Only libpq tells Diesel whether the server has a
        // transaction: other clients take the closure's for open after its COMMIT, and for aborted after the next error.
        let mut started = C::IS_OF_DIESEL && depth::is_aborted(conn.status());
        if !started {
            match conn.batch(&sql::ROLLBACK).await {
                Ok(()) => return Ok(true),
                Err(error) => started = classify(&error) == ErrorClass::TransactionAborted,
            }
        }
        conn.batch("ROLLBACK").await?;
        Ok(started)
    }

    async fn prepared_transactions(&mut self) -> Result<Option<String>, Error> {
        Ok(self.0.get_result(sql::Prepared {}).await?)
    }

    fn abandon(&mut self, _: u32, undo: Option<&str>) {
        match undo {
            Some(undo) => self.0.abandon(&["ROLLBACK", undo]),
            None => self.0.abandon(&["ROLLBACK"]),
        }
    }

    async fn migrate(
        &mut self,
        application: Option<&[SqlMigration]>,
    ) -> Result<Vec<String>, Error> {
        match application {
            None => migrations::migrate(self.0).await,
            Some(application) => migrations::run_all(self.0, application).await,
        }
    }

    /// Sends BEGIN and the locks in one message, whose result can't be read: a request that does not wait takes a second one.
    async fn begin_with_locks(
        &mut self,
        request: &Request,
        creates_shared: bool,
    ) -> Result<Option<LockOutcome>, Error> {
        let begun = if request.wait == Wait::No {
            begin_and_try(self.0, request, creates_shared).await
        } else {
            let acquired = begin_and_acquire(self.0, request, creates_shared).await;
            acquired.map(|()| LockOutcome::Acquired)
        };
        match begun {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) if error.to_string().contains(sql::NO_SHARED_ROW) => Ok(None),
            Err(error) => Err(map_error(request, error)),
        }
    }

    async fn want_exclusive(&mut self, request: &Request) -> Result<(), Error> {
        let (ids, shared) = (texts(&request.ids), texts(&request.shared));
        let started = Instant::now();
        match self.0.execute(sql::want(ids, shared, WANTED_US)).await {
            // Another session has locked a table. The next attempt repeats it.
            Err(error) if is_own_lock_timeout(&error, started, sql::nowait_lock_timeout(1)) => {
                Ok(())
            }
            Err(error) => match Error::from(error) {
                // Another session marks them too.
                error if error.is_retryable() => Ok(()),
                error => Err(error),
            },
            Ok(_) => Ok(()),
        }
    }

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        let refusal = match request.wait {
            Wait::Forever => acquire(self.0, request).await,
            Wait::AtMost(_) => acquire_with_timeout(self.0, request).await,
            Wait::No => {
                let answers = self.0.load(sql::try_acquire(request, false)).await;
                let outcome = try_outcome(request, answers);
                return outcome.map_err(|error| map_error(request, error));
            }
        };
        match refusal.map_err(|error| map_error(request, error))? {
            None => Ok(LockOutcome::Acquired),
            Some(level) => Err(unsuitable_isolation(request.resource(), &level)),
        }
    }

    async fn purge_unlocked(&mut self) -> Result<usize, Error> {
        let mut purged = 0;
        loop {
            begin(self.0, &sql::BEGIN).await?;
            let purge = purge_batch(self.0).await;
            let (found, removed) = link::end(self.0, purge).await?;
            purged += removed;
            // Not `removed == 0`: another purge may have deleted all that were found. Others create rows meanwhile.
            if found < usize::from(PURGE_BATCH) {
                ensure_visible(self.0, OBJECTS, purged > 0).await?;
                return Ok(purged);
            }
        }
    }

    async fn held_locks(&mut self) -> Result<Vec<HeldObjectLock>, Error> {
        held_locks::held_locks(self.0).await
    }

    async fn draw(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let drawn: Option<i64> = self.0.get_optional(Upsert(draw)).await?;
        if drawn.is_none() {
            assert_exhausted(draw, self.last(draw.sequence).await?)?;
        }
        Ok(drawn)
    }

    async fn last(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = last_drawn(Named(sequence.name()), Named(sequence.scope()));
        let last: Option<i64> = self.0.get_optional(last).await?;
        ensure_visible(self.0, SEQUENCES, last.is_some()).await?;
        Ok(last)
    }

    async fn list_sequences(&mut self, request: &ListRequest) -> Result<Vec<SequenceRow>, Error> {
        let query = || {
            let query = list_sequences(request.limit).into_boxed::<Pg>();
            let query = in_range(query, sequences::name, &request.names);
            in_range(query, sequences::scope, &request.keys)
        };
        let rows: Vec<_> = ending::autocommit_retry!(self.0, self.0.load(query()).await)?;
        ensure_visible(self.0, SEQUENCES, !rows.is_empty()).await?;
        Ok(rows)
    }
}

/// Begins a transaction and waits for the locks. Restarts it after a deadlock: it has not run the closure yet.
async fn begin_and_acquire(
    conn: &mut impl Link<Db = Pg>,
    request: &Request,
    creates_shared: bool,
) -> QueryResult<()> {
    loop {
        let time_is_up = request.is_expired();
        match begin(conn, &sql::begin_and_acquire(request, creates_shared)).await {
            Err(error) if classify(&error) == ErrorClass::Deadlock => {}
            Err(error) if is_wait_timeout(request, &error) && !time_is_up => {}
            begun => return begun,
        }
    }
}

/// Begins a transaction and tries to acquire the locks. An asynchronous connection sends both at once.
async fn begin_and_try(
    conn: &mut impl Link<Db = Pg>,
    request: &Request,
    creates_shared: bool,
) -> QueryResult<LockOutcome> {
    loop {
        let acquire = sql::try_acquire(request, !creates_shared);
        let started = caught(conn.begin_and_load(&sql::begin_for(request), &acquire)).await;
        let answers = begun(conn, started).await;
        let is_begun = answers.is_ok();
        let mut tried = answers.and_then(|answers| try_outcome(request, answers));
        if is_begun && !matches!(tried, Ok(LockOutcome::Acquired)) {
            let rolled_back = conn.roll_back().await;
            tried = tried.and_then(|outcome| rolled_back.map(|()| outcome));
        }
        match tried {
            Err(error) if classify(&error) == ErrorClass::Deadlock => {}
            tried => return tried,
        }
    }
}

async fn begin(conn: &mut impl Link<Db = Pg>, batch: &str) -> QueryResult<()> {
    let started = caught(conn.begin(batch)).await;
    begun(conn, started).await
}

/// If a statement after BEGIN has failed, a transaction is open that Diesel does not know of, so this ends it, unless it is the
/// application's. If that fails too, or the application's instrumentation panics, the connection is marked as broken.
async fn begun<T>(
    conn: &mut impl Link<Db = Pg>,
    started: thread::Result<QueryResult<T>>,
) -> QueryResult<T> {
    let started = depth::break_if_panicked(conn.status(), started);
    let error = match started.map_err(untracked) {
        Ok(value) => return Ok(value),
        Err(Ok(untracked)) => return Err(untracked.into()),
        Err(Err(error)) => error,
    };
    let ended = caught(conn.batch("ROLLBACK")).await;
    if depth::break_if_panicked(conn.status(), ended).is_err() {
        depth::mark_broken(conn.status());
    }
    Err(error)
}

async fn is_open_after_error<C: Link<Db = Pg>>(conn: &mut C) -> bool {
    if C::IS_OF_DIESEL {
        return depth::counted(conn.status()).is_ok_and(|depth| depth > 0);
    }
    let probe = conn.batch("SELECT 1").await;
    probe.is_err_and(|error| classify(&error) == ErrorClass::TransactionAborted)
}

/// Returns how many rows were found, and how many of them were deleted.
async fn purge_batch(conn: &mut impl Link<Db = Pg>) -> QueryResult<(usize, usize)> {
    let free: Vec<(String, i32)> = conn.load(sql::free_kept(PURGE_BATCH.into())).await?;
    let (ids, keys): (Vec<_>, Vec<_>) = free.into_iter().unzip();
    let ids: Vec<_> = ids.iter().map(|id: &String| Named(id)).collect();
    let found = || sql::of_keys(&ids, &keys);
    conn.execute(diesel::delete(sql::unwanted())).await?;
    let removed = conn.execute(diesel::delete(found())).await?;
    if removed == 0 && !ids.is_empty() {
        // Another purge has deleted them, or row-level security or a trigger protects them.
        let left: i64 = conn.get_result(found().count()).await?;
        if left > 0 {
            return Err(protected(OBJECTS).into());
        }
    }
    Ok((ids.len(), removed))
}

fn try_outcome(request: &Request, answers: QueryResult<Vec<String>>) -> QueryResult<LockOutcome> {
    match answers?.first().map(String::as_str) {
        Some("locked") => Ok(LockOutcome::Acquired),
        Some("held") => Ok(LockOutcome::Unavailable),
        Some(level) => Err(unsuitable_isolation(request.resource(), level).into()),
        None => Err(diesel::result::Error::NotFound),
    }
}

async fn acquire(conn: &mut impl Link<Db = Pg>, request: &Request) -> QueryResult<Option<String>> {
    let (keep, shared) = (request.is_kept(), texts(&request.shared));
    match &*request.ids {
        [id] if shared.is_empty() => {
            let acquire = sql::diesel_locks_acquire_one(id.as_str(), keep);
            conn.get_result(diesel::select(acquire)).await
        }
        ids => {
            let acquire = sql::acquire(texts(ids), keep, shared);
            conn.get_result(acquire).await
        }
    }
}

/// Sends a savepoint, the time-outs and the locks in one message. After an error it rolls back to the savepoint. Returns the
/// transaction's isolation level if it is unsuitable: another statement asks for it first, because the batch has no result.
async fn acquire_with_timeout(
    conn: &mut impl Link<Db = Pg>,
    request: &Request,
) -> QueryResult<Option<String>> {
    let refusal: Option<String> = conn
        .get_result(sql::acquire(Vec::new(), false, Vec::new()))
        .await?;
    if refusal.is_some() {
        return Ok(refusal);
    }
    loop {
        let time_is_up = request.is_expired();
        let Err(error) = conn.batch(&sql::acquire_in_savepoint(request)).await else {
            return Ok(None);
        };
        conn.batch(sql::ROLLBACK_TO_SAVEPOINT).await?;
        // If the time is not up now either, the transaction's time is: `transaction_timeout`.
        if time_is_up || !request.is_expired() || !is_wait_timeout(request, &error) {
            return Err(error);
        }
    }
}

fn is_wait_timeout(request: &Request, error: &diesel::result::Error) -> bool {
    matches!(request.wait, Wait::AtMost(_)) && classify(error) == ErrorClass::StatementTimeout
}

/// Whether a `lock_timeout` that this crate has set has ended the statement, which was sent after `since`. PostgreSQL reports
/// it as a cancel request if the lock became free at the same moment and another wait began.
fn is_own_lock_timeout(error: &diesel::result::Error, since: Instant, timeout: Duration) -> bool {
    match classify(error) {
        ErrorClass::LockTimeout => true,
        ErrorClass::CancelRequest => since.elapsed() >= timeout,
        _ => false,
    }
}

fn map_error(request: &Request, error: diesel::result::Error) -> Error {
    let timed_out = match (classify(&error), request.wait) {
        (ErrorClass::CancelRequest, Wait::AtMost(limit)) => {
            // Only the last attempt has a `lock_timeout`. It begins when the time is up.
            let timeout = sql::nowait_lock_timeout(request.ids.len());
            request.elapsed() >= limit.saturating_add(timeout)
        }
        (class, _) => matches!(
            class,
            ErrorClass::LockTimeout | ErrorClass::StatementTimeout | ErrorClass::TransactionTimeout
        ),
    };
    if timed_out {
        return request.timed_out(Some(error));
    }
    error.into()
}

fn unsuitable_isolation(resource: String, level: &str) -> Error {
    Error::UnsuitableIsolation {
        resource,
        reason: format!(
            "its isolation level is {}, whose snapshot is older than the lock: run the transaction with run_transaction \
             and IsolationLevel::ReadCommitted, or call the method outside of a transaction",
            level.to_uppercase()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_request_after_the_time_of_a_lock_timeout_may_be_one() {
        let error = |message: &str| {
            diesel::result::Error::DatabaseError(
                DatabaseErrorKind::Unknown,
                Box::new(message.to_owned()),
            )
        };
        let since = Instant::now();
        let (past, later) = (Duration::ZERO, Duration::from_secs(3600));
        for (message, timeout, expected) in [
            ("canceling statement due to lock timeout", later, true),
            ("canceling statement due to user request", later, false),
            ("canceling statement due to user request", past, true),
            ("canceling statement due to statement timeout", past, false),
        ] {
            let is_own = is_own_lock_timeout(&error(message), since, timeout);
            assert_eq!(is_own, expected, "{message}");
        }
    }
}
