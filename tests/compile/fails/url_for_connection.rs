//! A URL, where a connection is needed.
//~ `diesel-locks` has no engine for `
//~ String`
//~ `PgConnection`, `MysqlConnection` or `SqliteConnection`

fn start(mut url: String) -> diesel_locks::Result<()> {
    diesel_locks::migrate(&mut url)?;
    Ok(())
}

fn main() {}
