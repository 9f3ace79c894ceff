//! Lists semaphores, slots and sequences on SQLite.

use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::Error;
use crate::engine::list_queries::{list_queries, list_text_rows};

list_queries!(
    sqlite,
    Sqlite,
    SqliteConnection,
    str,
    String,
    Vec<u8>,
    String,
    diesel::RunQueryDsl,
    diesel::result::Error
);
list_text_rows!(SqliteConnection, once);

/// A read does not conflict with other transactions.
fn once<T>(
    conn: &mut SqliteConnection,
    statement: impl Fn(&mut SqliteConnection) -> diesel::QueryResult<T>,
) -> Result<T, Error> {
    Ok(statement(conn)?)
}
