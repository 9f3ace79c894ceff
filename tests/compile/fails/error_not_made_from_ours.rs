//! The error of the closure is not made from this crate's.
//~ From<diesel_locks::Error>

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn close_books(conn: &mut PgConnection) -> Result<(), String> {
    conn.with_object_lock("books", |_| Err("closed".to_owned()))
}

fn main() {}
