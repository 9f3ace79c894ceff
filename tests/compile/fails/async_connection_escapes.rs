//! The connection leaves the closure, and with it the transaction.
//~ lifetime may not live long enough

use diesel_async::AsyncPgConnection;
use diesel_locks::prelude::*;

async fn close_books(conn: &mut AsyncPgConnection) -> diesel_locks::Result<()> {
    let mut kept = None;
    conn.with_object_lock("books", async |conn| -> diesel_locks::Result<()> {
        kept = Some(conn);
        Ok(())
    })
    .await?;
    drop(kept);
    Ok(())
}

fn main() {}
