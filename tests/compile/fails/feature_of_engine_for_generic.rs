//! The crate lacks the feature of the engine, and a bound asks for it.
//@ features: sqlite
//~ `diesel-locks` has no engine for `
//~ MysqlConnection`
//~ `mysql` for `MysqlConnection`

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn lock<C: ObjectLockExt>(conn: &mut C) -> diesel_locks::Result<()> {
    conn.with_object_lock("a", |_| Ok(()))
}

fn start(conn: &mut MysqlConnection) -> diesel_locks::Result<()> {
    lock(conn)
}

fn main() {}
