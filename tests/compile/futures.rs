//! The futures of all asynchronous methods can be spawned, on each connection and on those of each pool.

mod pools;

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::pooled_connection::{bb8, deadpool};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::migrations::POSTGRES;
use diesel_locks::prelude::*;
use diesel_locks::{AsyncInspectExt, ListOptions, Result};

/// Each method on this connection. The closures borrow, and call other methods.
macro_rules! all_methods {
    ($function:ident, $conn:ty) => {
        async fn $function(mut conn: $conn) -> Result<()> {
            let id = ObjectId::new("Bond", 7);
            let one = Semaphore::new("one", 1);
            let passes = Sequence::new("pass");
            let options = TransactionOptions::new();
            let lease = || LeaseOptions::new(Duration::from_secs(9));

            diesel_locks::migrate_async(&mut *conn).await?;
            diesel_locks::run_migrations_async(&mut *conn, POSTGRES).await?;
            diesel_locks::assume_single_writer_async(&mut *conn).await?;

            conn.with_object_lock(&id, async |conn| -> Result<_> {
                conn.lock_object(&id).await?;
                conn.with_object_lock("b", async |conn| -> Result<_> {
                    conn.next_number(&passes).await
                })
                .await
            })
            .await?;
            conn.try_with_object_lock(&id, async |conn| -> Result<_> {
                conn.try_lock_object(&id).await
            })
            .await?;
            conn.with_object_lock([&id, &id], async |conn| -> Result<_> {
                conn.next_numbers(&passes, 7).await
            })
            .await?;
            conn.try_with_object_lock(&[id], async |_| -> Result<_> { Ok(()) })
                .await?;
            conn.purge_object_locks().await?;

            conn.register_semaphores([&one]).await?;
            if let Some(slot) = conn.try_acquire_slot(&one, lease()).await? {
                conn.release_slot(&slot).await?;
            }
            let mut slot = conn.acquire_slot(&one, lease(), Wait::No).await?;
            conn.renew_slot(&mut slot, Duration::from_secs(9)).await?;
            conn.run_transaction(options, async |conn| -> Result<_> {
                conn.pin_slot(&slot).await?;
                conn.next_number(&passes).await
            })
            .await?;
            conn.release_slot(slot).await?;
            conn.with_slot(&one, Wait::Forever, async |conn| -> Result<_> {
                conn.held_slots(&ListOptions::new().name(&one)).await
            })
            .await?;
            conn.try_with_slot(&one, async |conn| -> Result<_> {
                conn.held_slots(&ListOptions::new()).await
            })
            .await?;
            conn.force_release_all(&one).await?;
            conn.purge_slots(Duration::from_secs(9)).await?;
            conn.raise_fences(Duration::from_secs(9)).await?;

            conn.last_number(&passes).await?;

            conn.held_object_locks(9).await?;
            conn.semaphores(&ListOptions::new()).await?;
            conn.sequences(&ListOptions::new()).await?;
            Ok(())
        }
    };
}

type AsyncSqliteConnection = SyncConnectionWrapper<SqliteConnection>;

all_methods!(postgres, Box<AsyncPgConnection>);
all_methods!(mysql, Box<AsyncMysqlConnection>);
all_methods!(sqlite, Box<AsyncSqliteConnection>);
all_methods!(
    postgres_of_bb8,
    bb8::PooledConnection<'static, AsyncPgConnection>
);
all_methods!(
    mysql_of_bb8,
    bb8::PooledConnection<'static, AsyncMysqlConnection>
);
all_methods!(
    sqlite_of_bb8,
    bb8::PooledConnection<'static, AsyncSqliteConnection>
);
all_methods!(postgres_of_deadpool, deadpool::Object<AsyncPgConnection>);
all_methods!(mysql_of_deadpool, deadpool::Object<AsyncMysqlConnection>);
all_methods!(sqlite_of_deadpool, deadpool::Object<AsyncSqliteConnection>);

/// What `tokio::spawn` requires.
fn spawned<C, F>(_: fn(C) -> F)
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
}

#[test]
fn futures_of_all_methods_are_send() {
    spawned(postgres);
    spawned(mysql);
    spawned(sqlite);
    spawned(postgres_of_bb8);
    spawned(mysql_of_bb8);
    spawned(sqlite_of_bb8);
    spawned(postgres_of_deadpool);
    spawned(mysql_of_deadpool);
    spawned(sqlite_of_deadpool);
}
