//! The futures of what uses a pool, with each pool and connection.

use std::time::Duration;

use diesel_async::pooled_connection::{bb8, deadpool};
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::migrations::POSTGRES;
use diesel_locks::prelude::*;
use diesel_locks::{
    ActiveSlot, Async, LockPool, Result, Shutdown, SlotGuard, SlotRenewer, StopToken, Tick,
    TimerJob,
};

use super::{AsyncSqliteConnection, spawned};

const ONE: Semaphore = Semaphore::from_static("one", 1);
const SECOND: Duration = Duration::from_secs(1);

async fn guard_lives(guard: SlotGuard<Async>) -> Result<()> {
    guard.lost().await;
    guard.release().await?;
    Ok(())
}

async fn leads(leader: &ActiveSlot<Async>, stop: &StopToken) {
    while leader.sleep(SECOND).await {
        stop.stop();
    }
    leader.guard().lost().await;
    leader.stop_token().stopped().await;
    leader.ended().await;
}

/// Each method over this pool. The closures borrow, and call other methods.
macro_rules! all_methods {
    ($module:ident, $pool:ty) => {
        mod $module {
            use super::*;

            pub(super) async fn migration(pool: $pool) -> Result<()> {
                let mut conn = pool.get().await.expect("a connection");
                diesel_locks::migrate_async(&mut conn).await?;
                diesel_locks::run_migrations_async(&mut conn, POSTGRES).await?;
                Ok(())
            }

            pub(super) async fn lock_pool(locks: LockPool<$pool>) -> Result<()> {
                let (id, passes) = (ObjectId::new("Bond", 7), Sequence::new("pass"));
                locks
                    .with_object_lock(&id, async |conn| -> Result<_> {
                        conn.lock_object(&id).await?;
                        conn.with_slot(&ONE, Wait::No, async |conn| -> Result<_> {
                            conn.next_number(&passes).await
                        })
                        .await
                    })
                    .await?;
                let both = LockRequest::all([ObjectId::from("a"), ObjectId::from("b")]);
                locks
                    .with_object_lock(both, async |_| -> Result<_> {
                        locks
                            .with_object_lock("c", async |conn| -> Result<_> {
                                conn.next_number(&passes).await
                            })
                            .await
                    })
                    .await?;
                locks
                    .try_with_object_lock(&id, async |conn| -> Result<_> {
                        conn.next_number(&passes).await
                    })
                    .await?;
                locks
                    .with_slot(&ONE, SECOND, async |conn| -> Result<_> {
                        conn.next_number(&passes).await
                    })
                    .await?;
                locks
                    .try_with_slot(&ONE, async |conn| -> Result<_> {
                        conn.next_number(&passes).await
                    })
                    .await?;
                locks
                    .run_transaction(TransactionOptions::new(), async |conn| -> Result<_> {
                        conn.next_number(&passes).await
                    })
                    .await?;
                Ok(())
            }

            pub(super) async fn renewer(renewer: SlotRenewer<$pool>) -> Result<()> {
                let lease = LeaseOptions::new(SECOND);
                if let Some(guard) = renewer.try_acquire(&ONE, &lease).await? {
                    guard_lives(guard).await?;
                }
                guard_lives(renewer.acquire(&ONE, &lease, Wait::Forever).await?).await?;
                renewer
                    .try_run(&ONE, &lease, async |guard| -> Result<_> {
                        guard.lost().await;
                        renewer.try_acquire(&ONE, &lease).await
                    })
                    .await?;
                renewer.release_guards().await;
                Ok(())
            }

            pub(super) async fn loops(renewer: SlotRenewer<$pool>) -> Result<()> {
                let (lease, stop) = (LeaseOptions::new(SECOND), StopToken::new());
                let renewer = renewer.stopped_by(&stop);
                renewer
                    .run_as_leader(&ONE, &lease, async |leader| -> Result<_> {
                        leads(leader, &stop).await;
                        drop(renewer.pool().get().await.expect("a connection"));
                        Ok(())
                    })
                    .await?;
                let job = TimerJob::new("job", SECOND);
                renewer
                    .run_on_timer(&job, &lease, async |tick: &Tick<Async>| -> Result<_> {
                        leads(tick, &stop).await;
                        drop(renewer.pool().get().await.expect("a connection"));
                        Ok(())
                    })
                    .await
            }

            pub(super) async fn shutdown((shutdown, pool): (Shutdown<Async>, $pool)) -> Result<()> {
                let renewer = shutdown.add_renewer(&SlotRenewer::new(pool.clone()));
                let locks = shutdown.add_lock_pool(&LockPool::new(pool));
                let left = shutdown.shut_down(SECOND).await;
                assert!(left.is_empty());
                renewer.release_guards().await;
                lock_pool(locks).await
            }
        }
    };
}

all_methods!(postgres_of_bb8, bb8::Pool<AsyncPgConnection>);
all_methods!(mysql_of_bb8, bb8::Pool<AsyncMysqlConnection>);
all_methods!(sqlite_of_bb8, bb8::Pool<AsyncSqliteConnection>);
all_methods!(postgres_of_deadpool, deadpool::Pool<AsyncPgConnection>);
all_methods!(mysql_of_deadpool, deadpool::Pool<AsyncMysqlConnection>);
all_methods!(sqlite_of_deadpool, deadpool::Pool<AsyncSqliteConnection>);

macro_rules! all_are_send {
    ($($module:ident),* $(,)?) => {
        $(
            spawned($module::migration);
            spawned($module::lock_pool);
            spawned($module::renewer);
            spawned($module::loops);
            spawned($module::shutdown);
        )*
    };
}

#[test]
fn futures_over_pools_are_send() {
    spawned(guard_lives);
    all_are_send!(
        postgres_of_bb8,
        mysql_of_bb8,
        sqlite_of_bb8,
        postgres_of_deadpool,
        mysql_of_deadpool,
        sqlite_of_deadpool,
    );
}
