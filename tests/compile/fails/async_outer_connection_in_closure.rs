//! The connection beside the one that the closure gets.
//~ E0500

use diesel_async::AsyncPgConnection;
use diesel_locks::prelude::*;

async fn close_books(conn: &mut AsyncPgConnection) -> diesel_locks::Result<()> {
    conn.with_object_lock("books", async |_| conn.lock_object("accounts").await)
        .await
}

fn main() {}
