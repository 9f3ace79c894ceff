//! An asynchronous connection, for the function that blocks.
//~ `diesel-locks` has no engine for `
//~ AsyncPgConnection`
//~ `migrate` takes `PgConnection`, `MysqlConnection` or `SqliteConnection`

use diesel_async::AsyncPgConnection;

fn start(conn: &mut AsyncPgConnection) -> diesel_locks::Result<()> {
    diesel_locks::migrate(conn)?;
    Ok(())
}

fn main() {}
