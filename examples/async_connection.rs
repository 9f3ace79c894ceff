//! An application with asynchronous connections only, which needs no client library of the database: it draws a number under
//! an object lock, on a connection of a pool.
//!
//! `cargo run --example async_connection`, on SQLite; on a server:
//! `cargo run --example async_connection --features async-postgres,async-mysql -- postgres://..` (or `mysql://..`)

#[path = "sqlite/asynchronous.rs"]
mod sqlite;

use diesel_locks::prelude::*;

/// For a connection of this type. The client of MySQL makes large futures, so they are boxed.
macro_rules! draw {
    ($pool:expr, $conn:ty) => {{
        let pool = $pool;
        let mut conn = pool.get().await?;
        diesel_locks::migrate_async(&mut *conn).await?;
        let invoices = Sequence::new("invoice");
        let draw = async |conn: &mut $conn| conn.next_number(&invoices).await;
        Box::pin(conn.with_object_lock("Order:4711", draw)).await?
    }};
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("app.db").display().to_string();
    let url = std::env::args().nth(1).unwrap_or(file);
    let number: i64 = match url.split_once("://") {
        #[cfg(feature = "async-postgres")]
        Some(("postgres" | "postgresql", _)) => {
            use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8};
            type Conn = diesel_async::AsyncPgConnection;
            let manager = AsyncDieselConnectionManager::<Conn>::new(url);
            draw!(bb8::Pool::builder().build(manager).await?, Conn)
        }
        #[cfg(feature = "async-mysql")]
        Some(("mysql", _)) => {
            use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool};
            type Conn = diesel_async::AsyncMysqlConnection;
            let manager = AsyncDieselConnectionManager::<Conn>::new(url);
            draw!(deadpool::Pool::builder(manager).build()?, Conn)
        }
        None => draw!(sqlite::pool(&url)?, sqlite::Connection),
        Some((scheme, _)) => return Err(format!("no support for {scheme}://").into()),
    };
    println!("the number {number}");
    assert!(number > 0);
    Ok(())
}
