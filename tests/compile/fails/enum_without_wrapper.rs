//! An enum of connections that does not say which connection is inside.
//~ `diesel-locks` has no engine for `
//~ AnyConnection`
//~ implement `diesel_locks::ConnectionWrapper` for an enum of connections

use diesel::prelude::*;

#[derive(diesel::MultiConnection)]
pub enum AnyConnection {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

fn start(conn: &mut AnyConnection) -> diesel_locks::Result<()> {
    diesel_locks::migrate(conn)?;
    Ok(())
}

fn main() {}
