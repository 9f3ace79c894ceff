//! A number is not an id.
//~ LockRequest

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn close_books(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    conn.with_object_lock(4711, |_| Ok(()))
}

fn main() {}
