//! The session: what this crate changes in it and restores (time limits, named locks, the transaction of a failed BEGIN), and
//! what it checks (autocommit, the isolation level).

use std::thread;

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable};

use crate::engine::active_isolation::StartedTransaction;
use crate::engine::ending;
use crate::engine::mysql::execute;
use crate::engine::mysql::sql::{self, IN_TRANSACTION, Session, SessionState};
use crate::error::classify::mysql::is_transaction_in_progress;
use crate::error::classify::{ErrorClass, classify};
use crate::link::raw_sql::statement;
use crate::link::{On, depth};
use crate::rt::caught;
use crate::{Error, IsolationLevel};

/// The number of attempts, without those that the statement's time limit ended.
const ATTEMPTS: usize = 20;

/// Runs a statement that returns no rows until it succeeds, because `KILL QUERY` or a time limit may end it. After too many
/// failures the connection is marked as broken: a pool discards it, and the server ends the session.
pub(crate) async fn restore(
    conn: &mut impl On<Mysql>,
    statement: &(impl QueryFragment<Mysql> + QueryId + Sync),
) -> QueryResult<()> {
    let mut failures = 0;
    loop {
        let executed = caught(conn.execute(statement)).await;
        if let Some(restored) = after_attempt(conn, executed, &mut failures) {
            return restored;
        }
    }
}

pub(crate) async fn restore_by_text(
    conn: &mut impl On<Mysql>,
    statements: &str,
) -> QueryResult<()> {
    let mut failures = 0;
    loop {
        let executed = caught(conn.batch(statements)).await;
        if let Some(restored) = after_attempt(conn, executed, &mut failures) {
            return restored;
        }
    }
}

fn after_attempt<T>(
    conn: &mut impl On<Mysql>,
    executed: thread::Result<QueryResult<T>>,
    failures: &mut usize,
) -> Option<QueryResult<()>> {
    let Err(error) = depth::break_if_panicked(conn.status(), executed) else {
        return Some(Ok(()));
    };
    // On MariaDB the limit that is being restored may end this statement too.
    if classify(&error) != ErrorClass::StatementTimeout {
        *failures += 1;
    }
    if *failures < ATTEMPTS {
        return None;
    }
    depth::mark_broken(conn.status());
    tracing::warn!(%error, "the session's settings can't be restored: the connection is marked as broken");
    Some(Err(error))
}

/// Starts a transaction, which Diesel counts. After an error it sends ROLLBACK: BEGIN may have started the transaction,
/// or SET TRANSACTION have set the level of the next one, before the message failed. Not in a transaction of the
/// application, in which the message fails at its first statement.
pub(crate) async fn begin(conn: &mut impl On<Mysql>, message: &str) -> Result<(), Error> {
    loop {
        let started = caught(conn.begin(message)).await;
        let Err(error) = depth::break_if_panicked(conn.status(), started) else {
            return Ok(());
        };
        let error = untracked(error)?;
        // A connection that is not restored is marked as broken.
        let _ = restore_by_text(conn, &sql::ROLLBACK).await;
        // Galera may answer with the end of the transaction before.
        if classify(&error) != ErrorClass::Deadlock {
            return Err(error.into());
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

pub(crate) async fn assert_no_transaction(conn: &mut impl On<Mysql>) -> Result<(), Error> {
    match conn.batch(sql::ASSERT_NO_TRANSACTION).await {
        Ok(()) => Ok(()),
        Err(error) => Err(untracked(error)?.into()),
    }
}

// Autocommit: in a session without it, or with a transaction that the application has begun by its own SQL, nothing is
// committed outside the transactions that Diesel counts.

statement! {
    Mysql;
    Autocommit {} -> (BigInt, Nullable<BigInt>),
    |self| { "SELECT @@autocommit, "; {IN_TRANSACTION} }
}

/// Fails outside a transaction if the server does not commit each statement. MySQL does not report an open transaction, so
/// this sends a statement that fails in one.
pub(crate) async fn ensure_commits(conn: &mut impl On<Mysql>) -> Result<(), Error> {
    if depth::depth(conn.status())? > 0 {
        return Ok(());
    }
    match execute::get_result(conn, Autocommit {}).await? {
        (0_i64, _) => Err(no_autocommit()),
        (_, Some(0_i64)) => Ok(()),
        (_, Some(_)) => Err(Error::UntrackedTransaction { source: None }),
        (_, None) => assert_no_transaction(conn).await,
    }
}

pub(crate) async fn commits_nothing(conn: &mut impl On<Mysql>) -> Error {
    ensure_commits(conn)
        .await
        .err()
        .unwrap_or_else(no_autocommit)
}

fn no_autocommit() -> Error {
    Error::Unsupported {
        engine: "MySQL",
        mode: "implicit (autocommit = 0)".to_owned(),
        hint: "set autocommit = 1 in each session, and begin transactions with run_transaction or Diesel's transaction",
    }
}

// Isolation.

/// What is not known of the open transaction in which locks are acquired.
#[derive(Clone, Copy)]
pub(crate) enum Unknown {
    /// This crate has started it at the session's level: whether the closure reads what the last holder committed.
    Level,
    /// Also whether a transaction is open on the server.
    Transaction,
}

impl Unknown {
    /// `started` is the transaction if this crate has started it: its level overrides the session's. Fails when the level
    /// is known and unsuitable.
    pub(crate) fn of(
        started: Option<StartedTransaction>,
        resource: impl FnOnce() -> String,
    ) -> Result<Option<Self>, Error> {
        match started {
            None => Ok(Some(Self::Transaction)),
            Some(StartedTransaction(None)) => Ok(Some(Self::Level)),
            Some(StartedTransaction(Some(IsolationLevel::ReadCommitted))) => Ok(None),
            Some(StartedTransaction(Some(level))) => Err(unsuitable(resource(), level.sql())),
        }
    }

    pub(crate) async fn ask(
        self,
        conn: &mut impl On<Mysql>,
        resource: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let session = execute::get_result(conn, SessionState {}).await?;
        self.check(conn, resource, session).await
    }

    /// Fails in a transaction that reads from a snapshot, and when Diesel counts an open transaction and the server has
    /// none, where no lock would last.
    pub(crate) async fn check(
        self,
        conn: &mut impl On<Mysql>,
        resource: impl FnOnce() -> String,
        (level, in_transaction): Session,
    ) -> Result<(), Error> {
        if let Self::Transaction = self {
            assert_in_transaction(conn, in_transaction).await?;
        }
        if is_read_committed(level) {
            Ok(())
        } else {
            Err(unsuitable(resource(), level_named(level)))
        }
    }
}

/// Fails with [`Error::TransactionAborted`] when Diesel counts an open transaction and the server has none. MariaDB
/// reports whether one is open along with another result (`reported`). On MySQL, which does not, this starts a savepoint.
pub(crate) async fn assert_in_transaction(
    conn: &mut impl On<Mysql>,
    reported: Option<i64>,
) -> Result<(), Error> {
    match reported {
        Some(1) => Ok(()),
        Some(_) => Err(ending::ended(None)),
        None => Ok(conn.batch(sql::ASSERT_OPEN).await.map_err(|error| {
            if error.to_string().contains(sql::PROBE) {
                ending::ended(Some(error))
            } else {
                error.into()
            }
        })?),
    }
}

/// Isolation levels in the order of their numbers in [`SessionState`], from 1.
const LEVELS: [&str; 4] = [
    "READ-UNCOMMITTED",
    "READ-COMMITTED",
    "REPEATABLE-READ",
    "SERIALIZABLE",
];

fn is_read_committed(level: i64) -> bool {
    matches!(level, 1 | 2)
}

fn level_named(level: i64) -> &'static str {
    let position = usize::try_from(level - 1).ok();
    let name = position.and_then(|position| LEVELS.get(position));
    name.copied().unwrap_or("an unknown level")
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
