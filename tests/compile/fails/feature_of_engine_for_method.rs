//! The crate lacks the feature of the engine, and a method of the connection is called.
//@ features: sqlite
//~ with_object_lock
//~ `postgres` for `PgConnection`

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn close_books(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    conn.with_object_lock("books", |_| Ok(()))
}

fn main() {}
