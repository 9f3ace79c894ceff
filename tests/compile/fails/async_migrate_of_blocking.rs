//! A connection that blocks, for the asynchronous function.
//~ `diesel-locks` has no engine for `
//~ PgConnection`
//~ `migrate_async` those of diesel-async

use diesel::prelude::*;

async fn start(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    diesel_locks::migrate_async(conn).await?;
    Ok(())
}

fn main() {}
