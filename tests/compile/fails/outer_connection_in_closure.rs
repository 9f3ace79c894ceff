//! The connection beside the one that the closure gets.
//~ E0500

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn close_books(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    conn.with_object_lock("books", |_| conn.lock_object("accounts"))
}

fn main() {}
