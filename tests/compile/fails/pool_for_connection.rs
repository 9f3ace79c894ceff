//! A pool, where a connection of the pool is needed.
//~ `diesel-locks` has no engine for `
//~ Pool<ConnectionManager<
//~ pass a connection of the pool: `migrate(&mut pool.get()?)`

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};

fn start(mut pool: Pool<ConnectionManager<PgConnection>>) -> diesel_locks::Result<()> {
    diesel_locks::migrate(&mut pool)?;
    Ok(())
}

fn main() {}
