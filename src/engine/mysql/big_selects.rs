//! Has a session with a small `max_join_size` run a query that reads many rows.

use std::thread;

use diesel::mysql::Mysql;
use diesel::sql_types::Integer;

use super::execute::{MysqlError, Run, restore_by};
use crate::engine::raw_sql::statement;
use crate::link::Link;

/// The error number of a query that would read more rows than `max_join_size`.
const TOO_BIG_SELECT: i64 = 1104;

statement! {
    Mysql;
    /// SET STATEMENT, or a hint, can't be added to a query of the DSL.
    Permit {} -> Integer,
    |self, out| {
        out.push_sql(
            "SET @diesel_locks_big_selects = @@SESSION.sql_big_selects, SESSION sql_big_selects = 1",
        );
    }
}

statement! {
    Mysql;
    /// Has no effect unless [`Permit`] has run before.
    Restore {} -> Integer,
    |self, out| {
        out.push_sql(
            "SET SESSION sql_big_selects = \
             CAST(COALESCE(@diesel_locks_big_selects, @@SESSION.sql_big_selects) AS UNSIGNED), \
             @diesel_locks_big_selects = NULL",
        );
    }
}

/// Awaits `$query`, again with `sql_big_selects` if the server has refused it because of `max_join_size`. Restores the
/// setting, also after a panic.
macro_rules! big_select {
    ($conn:expr, $query:expr) => {
        match $query.await {
            Err(refused) if crate::engine::mysql::big_selects::is_too_big(&refused) => {
                let result = crate::poll::caught(async {
                    crate::engine::mysql::big_selects::permit($conn).await?;
                    $query.await
                });
                let result = result.await;
                crate::engine::mysql::big_selects::restore($conn, result).await
            }
            result => result,
        }
    };
}
pub(super) use big_select;

pub(super) fn is_too_big(failure: &MysqlError) -> bool {
    failure.number == Some(TOO_BIG_SELECT)
}

pub(super) async fn permit(conn: &mut impl Link<Backend = Mysql>) -> Result<(), MysqlError> {
    Permit {}.execute(conn).await?;
    Ok(())
}

pub(super) async fn restore<T, E: From<MysqlError>>(
    conn: &mut impl Link<Backend = Mysql>,
    result: thread::Result<Result<T, E>>,
) -> Result<T, E> {
    restore_by(conn, &Restore {}, result).await
}
