//! A reference to a reference.
//~ `diesel-locks` has no engine for `
//~ PgConnection`
//~ pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn lock<C: ObjectLockExt>(conn: &mut C) -> diesel_locks::Result<()> {
    conn.with_object_lock("a", |_| Ok(()))
}

fn start(mut conn: &mut PgConnection) -> diesel_locks::Result<()> {
    lock(&mut conn)
}

fn main() {}
