//! An iterator of ids goes through `LockRequest::all`.
//~ LockRequest
//~ From<Vec<I>>

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn close_books(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    let books = (1..=12).map(|month| ObjectId::new("Book", month));
    conn.with_object_lock(books, |_| Ok(()))
}

fn main() {}
