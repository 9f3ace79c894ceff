//! Checks that each statement of an open transaction sees what was committed before it.

use diesel::mysql::Mysql;

use super::execute::Run;
use super::sql;
use super::sql::session_state::{Session, SessionState};
use crate::engine::active_isolation::StartedTransaction;
use crate::link::Link;
use crate::{Error, IsolationLevel, transaction::run};

/// What is not known of the open transaction in which locks are acquired.
#[derive(Clone, Copy)]
pub(super) enum Unknown {
    /// This crate has started it at the session's level: whether the closure reads what the last holder committed.
    Level,
    /// Also whether a transaction is open on the server.
    Transaction,
}

impl Unknown {
    /// `started` is the transaction if this crate has started it: its level overrides the session's. Fails when the level
    /// is known and unsuitable.
    pub(super) fn of(
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

    /// Reads the session's state and checks it.
    pub(super) async fn ask(
        self,
        conn: &mut impl Link<Backend = Mysql>,
        resource: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let session = SessionState {}.get_result(conn).await?;
        self.check(conn, resource, session).await
    }

    /// Fails in a transaction that reads from a snapshot, and when Diesel counts an open transaction and the server has
    /// none, where no lock would last.
    pub(super) async fn check(
        self,
        conn: &mut impl Link<Backend = Mysql>,
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
pub(super) async fn assert_in_transaction(
    conn: &mut impl Link<Backend = Mysql>,
    reported: Option<i64>,
) -> Result<(), Error> {
    match reported {
        Some(1) => Ok(()),
        Some(_) => Err(run::ended(None)),
        None => Ok(conn.batch(sql::ASSERT_OPEN).await.map_err(|error| {
            if error.to_string().contains(sql::PROBE) {
                run::ended(Some(error))
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

/// Whether each statement at this level sees what was committed before it.
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
