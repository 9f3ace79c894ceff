//! Detects a session without `autocommit`: outside a transaction nothing that it changes is committed.

use diesel::mysql::Mysql;
use diesel::sql_types::BigInt;

use super::execute::Run;
use crate::Error;
use crate::engine::raw_sql::statement;
use crate::link::Link;
use crate::transaction::depth;

statement! {
    Mysql;
    /// Reads 1 if statements are transactions of their own.
    Autocommit {} -> BigInt,
    |self, out| {
        out.push_sql("SELECT @@autocommit");
    }
}

/// Fails outside a transaction if the session does not commit each statement.
pub(super) async fn ensure(conn: &mut impl Link<Backend = Mysql>) -> Result<(), Error> {
    if depth::depth(conn)? > 0 {
        return Ok(());
    }
    let on: i64 = Autocommit {}.get_result(conn).await?;
    if on == 0 { Err(refused()) } else { Ok(()) }
}

pub(super) fn refused() -> Error {
    Error::Unsupported {
        engine: "MySQL",
        mode: "implicit (autocommit = 0)".to_owned(),
        hint: "set autocommit = 1 in each session, and begin transactions with run_transaction or Diesel's transaction",
    }
}
