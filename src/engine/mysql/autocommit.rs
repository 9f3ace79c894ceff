//! Detects a session in which nothing is committed outside the transactions that Diesel counts: one without `autocommit`, or
//! with a transaction that the application has begun by its own SQL.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Nullable};

use super::execute::Run;
use super::session;
use super::sql::session_state::IN_TRANSACTION;
use crate::Error;
use crate::engine::raw_sql::{push, statement};
use crate::link::Link;
use crate::transaction::depth;

statement! {
    Mysql;
    /// Reads `autocommit`, and [`IN_TRANSACTION`].
    Autocommit {} -> (BigInt, Nullable<BigInt>),
    |self, out| {
        push!(out; "SELECT @@autocommit, "; {IN_TRANSACTION});
    }
}

/// Fails outside a transaction if the server does not commit each statement. MySQL does not report an open transaction, so
/// this sends a statement that fails in one.
pub(super) async fn ensure(conn: &mut impl Link<Backend = Mysql>) -> Result<(), Error> {
    if depth::depth(conn)? > 0 {
        return Ok(());
    }
    match (Autocommit {}).get_result(conn).await? {
        (0_i64, _) => Err(refused()),
        (_, Some(0_i64)) => Ok(()),
        (_, Some(_)) => Err(Error::UntrackedTransaction { source: None }),
        (_, None) => session::assert_no_transaction(conn).await,
    }
}

/// The error of [`ensure`], after a statement that was not committed at once.
pub(super) async fn reason(conn: &mut impl Link<Backend = Mysql>) -> Error {
    ensure(conn).await.err().unwrap_or_else(refused)
}

fn refused() -> Error {
    Error::Unsupported {
        engine: "MySQL",
        mode: "implicit (autocommit = 0)".to_owned(),
        hint: "set autocommit = 1 in each session, and begin transactions with run_transaction or Diesel's transaction",
    }
}
