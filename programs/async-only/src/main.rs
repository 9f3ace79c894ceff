//! An application with asynchronous connections only. It draws a number while it holds a lock, and prints it:
//! `cargo run -p async-only -- postgres://..` (or `mysql://..`).

use std::env;

use anyhow::{Context, Result, bail};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).context("async-only <URL>")?;
    let sequence = Sequence::new("async-only");
    let number = match url.split_once("://") {
        Some(("postgres" | "postgresql", _)) => {
            let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
            let pool = bb8::Pool::builder().build(manager).await?;
            let mut conn = pool.get().await?;
            diesel_locks::migrate_async(&mut *conn).await?;
            let draw = async |conn: &mut AsyncPgConnection| conn.next_number(&sequence).await;
            conn.with_object_lock("async-only", draw).await?
        }
        Some(("mysql", _)) => {
            let manager = AsyncDieselConnectionManager::<AsyncMysqlConnection>::new(url);
            let pool = deadpool::Pool::builder(manager).build()?;
            let mut conn = pool.get().await?;
            diesel_locks::migrate_async(&mut *conn).await?;
            let draw = async |conn: &mut AsyncMysqlConnection| conn.next_number(&sequence).await;
            // The client of MySQL makes large futures.
            Box::pin(conn.with_object_lock("async-only", draw)).await?
        }
        _ => bail!("{url} does not begin with postgres:// or mysql://"),
    };
    println!("{number}");
    Ok(())
}
