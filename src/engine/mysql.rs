//! MySQL and MariaDB: InnoDB's lock on the row, and a named lock under which one session at a time inserts the row.

mod execute;
mod galera;
mod held_locks;
mod migrations;
mod object_lock;
mod object_lock_sql;
mod sequences;
mod session;
mod slot_batches;
mod slot_claim;
mod slot_resize;
mod slot_search;
mod slots;
mod sql;

use async_trait::async_trait;
use diesel::connection::TransactionManagerStatus;
use diesel::mysql::Mysql;
use diesel::prelude::QueryDsl;

use crate::engine::migration_runner::SqlMigration;
use crate::engine::mysql::execute::assert_read;
use crate::engine::mysql::galera::{ONE_WRITER, unless_galera};
use crate::engine::mysql::object_lock_sql::{DeleteUnlocked, DeleteUnwanted};
use crate::engine::sequence_queries::{DrawRequest, SequenceRow, list_sequences};
use crate::engine::tables::{diesel_locks_sequences, in_range};
use crate::engine::{Engine, ending, has_engine};
use crate::error::classify::{ErrorClass, classify};
use crate::link::{self, Link, Savepoint, depth};
use crate::rt::caught;
use crate::values::held_object_lock::HeldObjectLock;
use crate::values::list_options::ListRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::values::retry_policy::RetryReason;
use crate::{Error, Sequence, TransactionOptions};

const PURGE_BATCH: u16 = 500;

/// The methods of a subject are in the module of its name.
pub(crate) struct MysqlEngine<'c, C>(pub(crate) &'c mut C);

#[cfg(feature = "mysql")]
has_engine!(HasBlockingEngine: diesel::MysqlConnection, MysqlEngine, in_process: false);
#[cfg(feature = "async-mysql")]
has_engine!(async diesel_async::AsyncMysqlConnection, MysqlEngine, in_process: false);

#[async_trait]
impl<C: Link<Db = Mysql>> Engine for MysqlEngine<'_, C> {
    fn status(&mut self) -> &mut TransactionManagerStatus {
        self.0.status()
    }

    async fn savepoint(&mut self, act: Savepoint) -> Result<(), diesel::result::Error> {
        link::savepoint(self.0, act).await
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

    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<bool, Error> {
        self.begin_by(&sql::begin(transaction)).await?;
        Ok(false)
    }

    /// Resets the statement cache: the statement that failed may be one of the closure's.
    fn prepare_retry(&mut self) {
        self.0.reset_statement_cache();
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
            self.0.reset_statement_cache();
            self.restore_by_text(&sql::ROLLBACK).await?;
        }
        Ok(started)
    }

    /// InnoDB ends the transaction after a deadlock, after a changed record (error 1020), and after a lock wait time-out with
    /// `innodb_rollback_on_timeout`. A COMMIT that the closure sent before that error can't be detected.
    async fn may_end_transactions(&mut self, reason: RetryReason) -> Result<bool, Error> {
        Ok(reason != RetryReason::LockTimeout || self.timeout_rolls_back().await?)
    }

    async fn assume_single_writer(&mut self) -> Result<(), Error> {
        self.remember(ONE_WRITER).await
    }

    async fn assert_open(&mut self) -> Result<(), Error> {
        if depth::is_aborted(self.0.status()) {
            return Err(ending::ended(None));
        }
        if !C::IS_OF_DIESEL {
            self.assert_in_transaction(None).await?;
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

    async fn migrate(
        &mut self,
        application: Option<&[SqlMigration]>,
    ) -> Result<Vec<String>, Error> {
        self.run_migrations(application).await
    }

    async fn begin_with_locks(
        &mut self,
        request: &Request,
        creates_shared: bool,
    ) -> Result<Option<LockOutcome>, Error> {
        unless_galera!(
            self,
            begin_on_server,
            begin_on_galera,
            request,
            creates_shared
        )
    }

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        unless_galera!(self, lock_on_server, lock_on_galera, request)
    }

    async fn want_exclusive(&mut self, request: &Request) -> Result<(), Error> {
        // A shared lock is exclusive on Galera.
        if self.is_galera().await? {
            return Ok(());
        }
        self.want_on_server(request).await
    }

    async fn purge_unlocked(&mut self) -> Result<usize, Error> {
        let mut purged = 0;
        loop {
            self.begin_by(&sql::BEGIN).await?;
            let removed = async {
                self.execute(DeleteUnwanted {}).await?;
                let delete = DeleteUnlocked {
                    limit: PURGE_BATCH.into(),
                };
                self.execute(delete).await
            };
            let removed = removed.await;
            match self.end_or_restart(removed).await? {
                None => {}
                Some(removed) => {
                    purged += removed;
                    // Others create rows meanwhile.
                    if removed < usize::from(PURGE_BATCH) {
                        return Ok(purged);
                    }
                }
            }
        }
    }

    async fn held_locks(&mut self) -> Result<Vec<HeldObjectLock>, Error> {
        self.show_held_locks().await
    }

    async fn draw(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        unless_galera!(self, draw_on_server, draw_on_galera, draw)
    }

    async fn last(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = sequences::row(sequence).select(diesel_locks_sequences::last);
        Ok(self.get_optional(last).await?)
    }

    async fn list_sequences(&mut self, request: &ListRequest) -> Result<Vec<SequenceRow>, Error> {
        let query = || {
            let query = list_sequences(request.limit).into_boxed::<Mysql>();
            let query = in_range(query, diesel_locks_sequences::name, &request.names);
            in_range(query, diesel_locks_sequences::scope, &request.keys)
        };
        let rows: Vec<SequenceRow> = self.load_list(query).await?;
        assert_read(rows.iter().map(|(name, _, _)| name.as_bytes()))?;
        Ok(rows)
    }
}
