//! The transaction continues whether it holds the lock or not.
//~ unused `LockOutcome` that must be used
#![deny(unused_must_use)]

use diesel_async::AsyncPgConnection;
use diesel_locks::prelude::*;

pub async fn close_books(conn: &mut AsyncPgConnection) -> Result<(), diesel_locks::Error> {
    conn.try_lock_object("books").await?;
    Ok(())
}

fn main() {}
