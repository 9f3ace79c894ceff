//! Without the traits no connection has the methods.
//~ use diesel_locks::ObjectLockExt

use diesel::prelude::*;

fn close_books(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    conn.with_object_lock("books", |_| Ok(()))
}

fn main() {}
