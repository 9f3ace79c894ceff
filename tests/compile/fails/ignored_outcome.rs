//! The transaction continues whether it holds the lock or not.
//~ unused `LockOutcome` that must be used
//~ if another transaction holds the lock, it was not acquired
#![deny(unused_must_use)]

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn close_books(conn: &mut PgConnection) -> Result<(), diesel_locks::Error> {
    conn.transaction(|conn| {
        conn.try_lock_object("books")?;
        Ok(())
    })
}

fn main() {}
