//! A pooled connection for a function that is generic over its connection.
//~ `diesel-locks` has no engine for `
//~ PooledConnection<ConnectionManager<
//~ pass `&mut *conn` for a pooled connection

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, PooledConnection};
use diesel_locks::prelude::*;

fn lock<C: ObjectLockExt>(conn: &mut C) -> diesel_locks::Result<()> {
    conn.with_object_lock("a", |_| Ok(()))
}

fn start(mut conn: PooledConnection<ConnectionManager<PgConnection>>) -> diesel_locks::Result<()> {
    lock(&mut conn)
}

fn main() {}
