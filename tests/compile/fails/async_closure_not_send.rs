//! The closure keeps what is not `Send` over an await: its task could not change its thread.
//~ future cannot be sent between threads safely
//~ the trait `Send` is not implemented for `Rc<

use std::rc::Rc;

use diesel_async::AsyncPgConnection;
use diesel_locks::prelude::*;

async fn close_books(mut conn: AsyncPgConnection) -> diesel_locks::Result<()> {
    conn.with_object_lock("books", async |conn| -> diesel_locks::Result<()> {
        let accounts = Rc::new("accounts".to_owned());
        conn.lock_object(accounts.as_str()).await?;
        drop(accounts);
        Ok(())
    })
    .await
}

fn start(conn: AsyncPgConnection) {
    tokio::spawn(close_books(conn));
}

fn main() {}
