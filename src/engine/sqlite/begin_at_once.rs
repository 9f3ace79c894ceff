//! Begins a transaction without a wait for another writer.

use std::time::Duration;

use diesel::connection::{
    AnsiTransactionManager, DefaultLoadingMode, LoadConnection, SimpleConnection,
};
use diesel::deserialize::FromSqlRow;
use diesel::result::Error;
use diesel::sql_types::Integer;
use diesel::{QueryResult, SqliteConnection};

use super::sql::{BusyTimeout, set_busy_timeout};
use crate::error::classify::{ErrorClass, classify};

/// Another connection writes.
pub(crate) struct Busy {
    pub(crate) error: Error,
    /// How long to wait for it.
    pub(crate) limit: Duration,
}

/// Begins a transaction. SQLite's `busy_timeout` is 0 meanwhile.
pub(crate) fn begin_at_once(
    conn: &mut SqliteConnection,
    sql: &str,
) -> QueryResult<Result<(), Busy>> {
    let millis = busy_timeout(conn)?;
    if millis == 0 {
        return AnsiTransactionManager::begin_transaction_sql(conn, sql).map(Ok);
    }
    conn.batch_execute(&set_busy_timeout(0))?;
    let begun = AnsiTransactionManager::begin_transaction_sql(conn, sql);
    let restored = conn.batch_execute(&set_busy_timeout(millis));
    let begun = match begun {
        Err(error) if classify(&error) == ErrorClass::Busy => {
            let limit = Duration::from_millis(millis.unsigned_abs().into());
            Err(Busy { error, limit })
        }
        begun => Ok(begun?),
    };
    restored?;
    Ok(begun)
}

fn busy_timeout(conn: &mut SqliteConnection) -> QueryResult<i32> {
    let mut rows = LoadConnection::<DefaultLoadingMode>::load(conn, BusyTimeout {})?;
    let row = rows.next().ok_or(Error::NotFound)??;
    FromSqlRow::<Integer, _>::build_from_row(&row).map_err(Error::DeserializationError)
}

#[cfg(test)]
mod tests {
    use diesel::Connection;

    use super::*;

    #[test]
    fn another_writer_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.sqlite3").display().to_string();
        let mut writer = SqliteConnection::establish(&path).expect("a database");
        writer.batch_execute("BEGIN IMMEDIATE").expect("BEGIN");
        let mut conn = SqliteConnection::establish(&path).expect("a database");
        conn.batch_execute("PRAGMA busy_timeout = 60000")
            .expect("PRAGMA");

        let begun = begin_at_once(&mut conn, "BEGIN IMMEDIATE").expect("an answer");
        let Err(Busy { limit, .. }) = begun else {
            panic!("two writers");
        };
        assert_eq!(limit, Duration::from_secs(60));
        assert_eq!(busy_timeout(&mut conn), Ok(60_000));

        writer.batch_execute("ROLLBACK").expect("ROLLBACK");
        let begun = begin_at_once(&mut conn, "BEGIN IMMEDIATE").expect("an answer");
        assert!(begun.is_ok());
        assert_eq!(busy_timeout(&mut conn), Ok(60_000));
    }
}
