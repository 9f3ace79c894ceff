//! A pool, where a connection of the pool is needed.
//~ `diesel-locks` has no engine for `
//~ Pool<
//~ pass a connection of the pool: `migrate_async(&mut pool.get().await?)`

use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

async fn start(mut pool: Pool<AsyncPgConnection>) -> diesel_locks::Result<()> {
    diesel_locks::migrate_async(&mut pool).await?;
    Ok(())
}

fn main() {}
