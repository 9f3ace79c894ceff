//! The crate lacks the feature `r2d2`, and does not know pooled connections.
//@ features: sqlite
//~ `diesel-locks` has no engine for `
//~ PooledConnection<ConnectionManager<
//~ enable the feature `r2d2` of `diesel-locks` for a `PooledConnection`

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, PooledConnection};

fn start(
    mut conn: PooledConnection<ConnectionManager<SqliteConnection>>,
) -> diesel_locks::Result<()> {
    diesel_locks::migrate(&mut conn)?;
    Ok(())
}

fn main() {}
