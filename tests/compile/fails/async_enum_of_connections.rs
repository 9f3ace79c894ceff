//! An enum of connections blocks, and has no asynchronous methods.
//~ `diesel-locks` has no asynchronous engine for `
//~ AnyConnection`
//~ not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`

use diesel::prelude::*;
use diesel_locks::prelude::*;

#[derive(diesel::MultiConnection)]
pub enum AnyConnection {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

async fn lock<C: AsyncObjectLockExt>(conn: &mut C) -> diesel_locks::Result<()> {
    conn.lock_object("books").await
}

async fn start(conn: &mut AnyConnection) -> diesel_locks::Result<()> {
    lock(conn).await
}

fn main() {}
