//! Whether a connection has SQLite's write lock.

use anyhow::Result;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error;
use diesel::sql_query;
use diesel::sql_types::Integer;

#[derive(QueryableByName)]
struct BusyTimeout {
    #[diesel(sql_type = Integer)]
    timeout: i32,
}

/// Asks for it, at once.
pub(super) fn somebody_writes(conn: &mut SqliteConnection) -> Result<bool> {
    let before = sql_query("PRAGMA busy_timeout").get_result::<BusyTimeout>(conn)?;
    conn.batch_execute("PRAGMA busy_timeout = 0")?;
    let begun = conn.batch_execute("BEGIN IMMEDIATE");
    if begun.is_ok() {
        conn.batch_execute("ROLLBACK")?;
    }
    conn.batch_execute(&format!("PRAGMA busy_timeout = {}", before.timeout))?;
    match begun {
        Ok(()) => Ok(false),
        Err(Error::DatabaseError(_, error)) if error.message() == "database is locked" => Ok(true),
        Err(error) => Err(error.into()),
    }
}
