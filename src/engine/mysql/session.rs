//! The session: repeats what restores it until that succeeds, ends the transaction of a failed BEGIN, and checks autocommit and
//! the isolation level. `sql::begin` sets the level of a transaction.

use std::thread;

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{QueryFragment, QueryId};

use crate::engine::ending;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::sql::{self, Session, SessionState};
use crate::error::classify::mysql::is_transaction_in_progress;
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::link::depth::{self, StartedTransaction};
use crate::rt::caught;
use crate::{Error, IsolationLevel};

/// The number of attempts, without those that the statement's time limit ended.
const ATTEMPTS: usize = 20;

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    /// Runs a statement that returns no rows until it succeeds, because `KILL QUERY` or a time limit may end it. After too many
    /// failures the connection is marked as broken: a pool discards it, and the server ends the session.
    pub(crate) async fn restore(
        &mut self,
        statement: &(impl QueryFragment<Mysql> + QueryId + Sync),
    ) -> QueryResult<()> {
        let mut failures = 0;
        loop {
            let executed = caught(self.0.execute(statement)).await;
            if let Some(restored) = self.after_attempt(executed, &mut failures) {
                return restored;
            }
        }
    }

    pub(crate) async fn restore_by_text(&mut self, statements: &str) -> QueryResult<()> {
        let mut failures = 0;
        loop {
            let executed = caught(self.0.batch(statements)).await;
            if let Some(restored) = self.after_attempt(executed, &mut failures) {
                return restored;
            }
        }
    }

    fn after_attempt<T>(
        &mut self,
        executed: thread::Result<QueryResult<T>>,
        failures: &mut usize,
    ) -> Option<QueryResult<()>> {
        let Err(error) = depth::break_if_panicked(self.0.status(), executed) else {
            return Some(Ok(()));
        };
        // On MariaDB the limit that is being restored may end this statement too.
        if classify(&error) != ErrorClass::StatementTimeout {
            *failures += 1;
        }
        if *failures < ATTEMPTS {
            return None;
        }
        depth::mark_broken(self.0.status());
        tracing::warn!(%error, "the session's settings can't be restored: the connection is marked as broken");
        Some(Err(error))
    }

    /// Starts a transaction, which Diesel counts. After an error it sends ROLLBACK: BEGIN may have started the transaction,
    /// or SET TRANSACTION have set the level of the next one, before the message failed. Not in a transaction of the
    /// application, in which the message fails at its first statement.
    pub(crate) async fn begin_by(&mut self, message: &str) -> Result<(), Error> {
        loop {
            let started = caught(self.0.begin(message)).await;
            let Err(error) = depth::break_if_panicked(self.0.status(), started) else {
                return Ok(());
            };
            let error = untracked(error)?;
            // A connection that is not restored is marked as broken.
            let _ = self.restore_by_text(&sql::ROLLBACK).await;
            // Galera may answer with the end of the transaction before.
            if classify(&error) != ErrorClass::Deadlock {
                return Err(error.into());
            }
        }
    }

    pub(crate) async fn assert_no_transaction(&mut self) -> Result<(), Error> {
        match self.0.batch(sql::ASSERT_NO_TRANSACTION).await {
            Ok(()) => Ok(()),
            Err(error) => Err(untracked(error)?.into()),
        }
    }

    /// Fails outside a transaction if the server does not commit each statement: in a session without autocommit, or in a
    /// transaction of the application's own SQL. MySQL does not report one, so this sends a statement that fails in it.
    pub(crate) async fn ensure_commits(&mut self) -> Result<(), Error> {
        if depth::depth(self.0.status())? > 0 {
            return Ok(());
        }
        let ((_, in_transaction), autocommit): (Session, i64) =
            self.get_result(SessionState {}).await?;
        match in_transaction {
            _ if autocommit == 0 => Err(no_autocommit()),
            Some(0) => Ok(()),
            Some(_) => Err(Error::UntrackedTransaction { source: None }),
            None => self.assert_no_transaction().await,
        }
    }

    pub(crate) async fn commits_nothing(&mut self) -> Error {
        let failed = self.ensure_commits().await.err();
        failed.unwrap_or_else(no_autocommit)
    }

    /// Fails in a transaction that reads from a snapshot, where the closure would not read what the last holder committed, and
    /// when Diesel counts an open transaction and the server has none, where no lock would last.
    pub(crate) async fn ensure_read_committed(
        &mut self,
        resource: impl Fn() -> String,
    ) -> Result<(), Error> {
        if self.is_level_unknown(&resource)? {
            let (session, _): (_, i64) = self.get_result(SessionState {}).await?;
            self.check_session(resource, session).await?;
        }
        Ok(())
    }

    /// Whether only the session tells the level of the open transaction. Fails when the level is known and unsuitable.
    pub(crate) fn is_level_unknown(
        &mut self,
        resource: impl FnOnce() -> String,
    ) -> Result<bool, Error> {
        match depth::started(self.0.status()) {
            None | Some(StartedTransaction(None)) => Ok(true),
            Some(StartedTransaction(Some(IsolationLevel::ReadCommitted))) => Ok(false),
            Some(StartedTransaction(Some(level))) => Err(unsuitable(resource(), level.sql())),
        }
    }

    /// [`ensure_read_committed`](Self::ensure_read_committed) with the session that a statement has returned.
    pub(crate) async fn check_session(
        &mut self,
        resource: impl FnOnce() -> String,
        (level, in_transaction): Session,
    ) -> Result<(), Error> {
        self.assert_in_transaction(in_transaction).await?;
        let level = match level {
            // READ UNCOMMITTED, READ COMMITTED.
            1 | 2 => return Ok(()),
            3 => "REPEATABLE-READ",
            4 => "SERIALIZABLE",
            _ => "an unknown level",
        };
        Err(unsuitable(resource(), level))
    }

    /// Fails with [`Error::TransactionAborted`] when Diesel counts an open transaction and the server has none. Not in a
    /// transaction of this crate, whose COMMIT detects that. MariaDB reports whether one is open along with another result
    /// (`reported`). On MySQL, which does not, this starts a savepoint.
    pub(crate) async fn assert_in_transaction(
        &mut self,
        reported: Option<i64>,
    ) -> Result<(), Error> {
        if depth::started(self.0.status()).is_some() || reported == Some(1) {
            return Ok(());
        }
        if reported.is_some() {
            return Err(ending::ended(None));
        }
        match self.0.batch(ending::ASSERT_OPEN).await {
            Err(error) if error.to_string().contains("diesel_locks_open") => {
                Err(ending::ended(Some(error)))
            }
            opened => Ok(opened?),
        }
    }
}

/// Fails if the message that has failed so met a transaction that the application has begun by its own SQL, in which it has
/// changed nothing. Returns any other error.
pub(crate) fn untracked(error: diesel::result::Error) -> Result<diesel::result::Error, Error> {
    if let diesel::result::Error::DatabaseError(_, information) = &error
        && is_transaction_in_progress(information.message())
    {
        let source = Some(error);
        return Err(Error::UntrackedTransaction { source });
    }
    Ok(error)
}

fn no_autocommit() -> Error {
    Error::Unsupported {
        engine: "MySQL",
        mode: "implicit (autocommit = 0)".to_owned(),
        hint: "set autocommit = 1 in each session, and begin transactions with run_transaction or Diesel's transaction",
    }
}

fn unsuitable(resource: String, level: &str) -> Error {
    Error::UnsuitableIsolation {
        resource,
        reason: format!(
            "the isolation level is {level}, whose snapshot may be older than the lock: run the transaction with \
             run_transaction and IsolationLevel::ReadCommitted, call the method outside of a transaction, or SET SESSION \
             TRANSACTION ISOLATION LEVEL READ COMMITTED (the level of a plain SET TRANSACTION is not visible)"
        ),
    }
}
