//! MySQL and MariaDB: InnoDB's lock on the row, and a named lock under which one session at a time inserts the row.

mod execute;
mod galera;
mod held_locks;
mod lists;
mod migrations;
mod object_lock;
mod object_lock_sql;
mod sequences;
mod session;
mod slot_batches;
mod slot_claim;
mod slot_resize;
mod slot_search;
mod slot_sql;
mod slots;
mod sql;
mod writers;

use async_trait::async_trait;
use diesel::connection::TransactionManagerStatus;
use diesel::mysql::Mysql;
use diesel::prelude::QueryDsl;
#[cfg(feature = "async-mysql")]
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};

use crate::engine::operations::{DrawRequest, SequenceRow, SessionChange, TransactionBackend};
use crate::engine::sequence_queries::list_sequences;
use crate::engine::tables::{diesel_locks_sequences, in_range};
use crate::engine::{Engine, active_isolation, ending, has_engine};
use crate::error::classify::{ErrorClass, classify};
use crate::link::{self, On, depth};
use crate::rt::caught;
use crate::values::held_object_lock::HeldObjectLock;
use crate::values::list_options::ListRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::values::retry_policy::RetryReason;
use crate::{Error, IsolationLevel, Sequence, TransactionOptions, Wait};

use crate::engine::mysql::execute::end_or_restart;
use crate::engine::mysql::object_lock::{AcquireError, rolled_back_by_timeout};
use crate::engine::mysql::object_lock_sql::{DeleteUnlocked, LOCK_BATCH, begin_and_acquire, undo};

const PURGE_BATCH: i64 = 500;

pub(crate) struct MysqlEngine<'c, C>(pub(crate) &'c mut C);

#[cfg(feature = "mysql")]
has_engine!(HasBlockingEngine: diesel::MysqlConnection, MysqlEngine, in_process: false);
#[cfg(feature = "async-mysql")]
has_engine!(HasAsyncEngine: diesel_async::AsyncMysqlConnection, MysqlEngine, in_process: false);
#[cfg(feature = "async-mysql")]
has_engine!(
    HasBlockingEngine: AsyncConnectionWrapper<diesel_async::AsyncMysqlConnection, B>, MysqlEngine, in_process: false;
    <B: BlockOn + Send>
);

#[async_trait]
impl<C: On<Mysql>> TransactionBackend for MysqlEngine<'_, C> {
    fn status(&mut self) -> &mut TransactionManagerStatus {
        self.0.status()
    }

    async fn begin_savepoint(&mut self) -> Result<(), diesel::result::Error> {
        self.0.begin_nested().await
    }

    async fn release_savepoint(&mut self) -> Result<(), diesel::result::Error> {
        link::release(self.0).await
    }

    async fn roll_back_to_savepoint(&mut self) -> Result<(), diesel::result::Error> {
        self.0.roll_back().await
    }

    fn validate(&self, transaction: &TransactionOptions) -> Result<(), Error> {
        if transaction.deferrable {
            return Err(Error::Unsupported {
                engine: "MySQL",
                mode: "DEFERRABLE".to_owned(),
                hint: "leave it out",
            });
        }
        Ok(())
    }

    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<SessionChange, Error> {
        session::begin(self.0, &sql::begin(transaction)).await?;
        Ok(SessionChange::None)
    }

    /// Resets the statement cache: the statement that failed may be one of the closure's.
    fn prepare_retry(&mut self) {
        execute::reset_statement_cache(self.0);
    }

    fn mark_isolation(&mut self, level: Option<IsolationLevel>) -> Option<active_isolation::Scope> {
        Some(active_isolation::enter(&*self.0, level))
    }

    async fn commit(&mut self) -> Result<(), Error> {
        let committed = caught(self.0.batch(&sql::COMMIT)).await;
        depth::break_if_panicked(self.0.status(), committed).map_err(ending::commit_error)?;
        depth::mark_closed(self.0.status());
        Ok(())
    }

    /// The message of COMMIT ends with a statement that restores the session. Either may have failed, so it is unknown
    /// whether the transaction was committed. Unless the error is that of a wait for a lock: COMMIT alone waits, for a backup
    /// or for `FLUSH TABLES WITH READ LOCK`, and has then rolled back (`lock_wait_timeout`).
    fn map_commit_error(&self, error: Error) -> Error {
        match error {
            Error::StatementTimeout { source } if classify(&source) == ErrorClass::LockTimeout => {
                Error::StatementTimeout { source }
            }
            Error::Database(source) | Error::StatementTimeout { source } => {
                Error::OutcomeUnknown { source }
            }
            error => error,
        }
    }

    async fn roll_back(&mut self) -> Result<bool, diesel::result::Error> {
        let started = self.0.batch(&sql::ROLLBACK_STARTED).await.is_ok();
        if !started {
            // The server may have ended the transaction by an error in place of rows of the closure.
            execute::reset_statement_cache(self.0);
            session::restore_by_text(self.0, &sql::ROLLBACK).await?;
        }
        Ok(started)
    }

    /// InnoDB ends the transaction after a deadlock, after a changed record (error 1020), and after a lock wait time-out with
    /// `innodb_rollback_on_timeout`. A COMMIT that the closure sent before that error can't be detected.
    async fn may_end_transactions(&mut self, reason: RetryReason) -> Result<bool, Error> {
        Ok(reason != RetryReason::LockTimeout || rolled_back_by_timeout(self.0).await?)
    }

    async fn assume_single_writer(&mut self) -> Result<(), Error> {
        writers::assume_one(self.0).await
    }

    async fn assert_open(&mut self) -> Result<(), Error> {
        if depth::is_aborted(self.0.status()) {
            return Err(ending::ended(None));
        }
        if !C::KNOWS_SERVER_STATE && active_isolation::entered(self.0).is_none() {
            session::assert_in_transaction(self.0, None).await?;
        }
        Ok(())
    }

    fn abandon(&mut self, depth: u32, undo: Option<&str>) {
        match undo {
            // First: a cancel request that meets one of them has the server skip those that follow.
            Some(undo) if depth == 0 => self.0.abandon(&[undo, "ROLLBACK"]),
            // In an open transaction a lease is rolled back.
            _ => self.0.abandon(&["ROLLBACK"]),
        }
    }
}

#[async_trait]
impl<C: On<Mysql>> Engine for MysqlEngine<'_, C> {
    async fn migrate(&mut self) -> Result<Vec<String>, Error> {
        migrations::migrate(self.0).await
    }

    async fn begin_with_locks(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        if !writers::is_galera(self.0).await? {
            let outcome = begin_with_locks(self.0, request).await;
            if !writers::is_refused_on_galera(&outcome) {
                return outcome;
            }
        }
        galera::begin_with_locks(self.0, request).await
    }

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        if !writers::is_galera(self.0).await? {
            let outcome = lock_in_transaction(self.0, request).await;
            if !writers::is_refused_on_galera(&outcome) {
                return outcome;
            }
        }
        galera::lock_in_transaction(self.0, request).await
    }

    async fn purge_unlocked(&mut self) -> Result<usize, Error> {
        let mut purged = 0;
        loop {
            session::begin(self.0, &sql::BEGIN).await?;
            let delete = DeleteUnlocked { limit: PURGE_BATCH };
            let removed = execute::execute(self.0, delete).await;
            match end_or_restart(self.0, removed).await? {
                None => {}
                Some(0) => return Ok(purged),
                Some(removed) => purged += removed,
            }
        }
    }

    async fn held_locks(&mut self) -> Result<Vec<HeldObjectLock>, Error> {
        held_locks::held_locks(self.0).await
    }

    async fn draw(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        if !writers::is_galera(self.0).await? {
            let drawn = sequences::draw(self.0, draw).await;
            if !writers::is_refused_on_galera(&drawn) {
                return drawn;
            }
        }
        galera::draw(self.0, draw).await
    }

    async fn last(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        sequences::last(self.0, sequence).await
    }

    async fn list_sequences(&mut self, request: &ListRequest) -> Result<Vec<SequenceRow>, Error> {
        let query = || {
            let query = list_sequences(request.limit).into_boxed::<Mysql>();
            let query = in_range(query, diesel_locks_sequences::name, &request.names);
            in_range(query, diesel_locks_sequences::scope, &request.keys)
        };
        let rows: Vec<SequenceRow> = lists::load_list(self.0, query).await?;
        lists::assert_read(rows.iter().map(|(name, _, _)| name.as_bytes()))?;
        Ok(rows)
    }
}

async fn begin_with_locks(
    conn: &mut impl On<Mysql>,
    request: &Request,
) -> Result<LockOutcome, Error> {
    let rides_with_begin = !request.is_kept() && request.ids.len() <= LOCK_BATCH;
    if rides_with_begin && let Some(outcome) = try_begin_fast(conn, request).await? {
        return Ok(outcome);
    }
    // A kept row usually exists, and locking it takes one round trip. If it was missing once, take the named lock
    // first.
    let mut named_lock = !request.is_kept();
    loop {
        session::begin(conn, &sql::BEGIN).await?;
        let transaction = object_lock::TxContext::Started { named_lock };
        let acquired = object_lock::acquire(conn, request, transaction, &mut 0).await;
        let Err(refusal) = acquired else {
            return Ok(LockOutcome::Acquired);
        };
        ending::roll_back(&mut MysqlEngine(conn)).await;
        match refusal {
            AcquireError::Unavailable { .. } => return Ok(LockOutcome::Unavailable),
            AcquireError::NoRow => named_lock = true,
            // It no longer holds the objects that it had acquired.
            AcquireError::LimitOfServer(_) => object_lock::pause(request).await,
            // The transaction has not run the closure yet, so it can be restarted.
            AcquireError::Failed(Error::Deadlock { source }) => {
                if request.is_expired() {
                    return Err(request.timed_out(Some(source)));
                }
            }
            AcquireError::Failed(error) => return Err(error),
        }
    }
}

async fn lock_in_transaction(
    conn: &mut impl On<Mysql>,
    request: &Request,
) -> Result<LockOutcome, Error> {
    let (open, mut acquired) = (object_lock::TxContext::Open, 0);
    let Err(refusal) = object_lock::acquire(conn, request, open, &mut acquired).await else {
        return Ok(LockOutcome::Acquired);
    };
    let error = match refusal {
        AcquireError::Unavailable { timed_out: true } if rolled_back_by_timeout(conn).await? => {
            ending::ended(None)
        }
        AcquireError::Unavailable { .. } | AcquireError::NoRow if acquired == 0 => {
            return Ok(LockOutcome::Unavailable);
        }
        AcquireError::Unavailable { .. } | AcquireError::NoRow => request.unavailable(),
        AcquireError::LimitOfServer(error) | AcquireError::Failed(error) => error,
    };
    Err(request.partly_locked(acquired, error))
}

/// Starts the transaction and acquires the locks in one message. Returns `None`, with no transaction open, when that
/// failed: then the caller acquires the locks one by one, which waits or returns the error. A request that does not wait
/// is answered at once when another transaction holds a row.
async fn try_begin_fast(
    conn: &mut impl On<Mysql>,
    request: &Request,
) -> Result<Option<LockOutcome>, Error> {
    let batch = begin_and_acquire(request);
    let started = caught(conn.begin(&batch)).await;
    let Err(error) = depth::break_if_panicked(conn.status(), started) else {
        return Ok(Some(LockOutcome::Acquired));
    };
    let error = session::untracked(error)?;
    // Its error takes precedence: the first one may be that of a condition of this crate.
    session::restore_by_text(conn, &undo(request)).await?;
    let held = matches!(
        classify(&error),
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable
    );
    Ok((held && request.wait == Wait::No).then_some(LockOutcome::Unavailable))
}
