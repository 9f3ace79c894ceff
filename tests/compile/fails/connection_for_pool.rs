//! A connection, where a pool is needed.
//~ `diesel-locks` can't use `
//~ PgConnection` as a pool
//~ enable the features of `diesel-locks` for the pool (`r2d2`, `bb8`, `deadpool`)

use diesel::prelude::*;
use diesel_locks::LockPool;

fn start(conn: PgConnection) {
    let _ = LockPool::new(conn);
}

fn main() {}
