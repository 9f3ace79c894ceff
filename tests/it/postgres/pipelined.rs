//! Round trips of locks on asynchronous connections.

use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, TransactionManager,
};
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};
use tokio::runtime::Builder;

use crate::support::Backend;
use crate::support::postgres::Postgres;
use crate::support::proxy::CountingProxy;

/// Runs on one thread, so that what is sent at the same time is in one message.
fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

async fn connect() -> (Postgres, CountingProxy, AsyncPgConnection) {
    let database = Postgres::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let conn = AsyncPgConnection::establish(&url).await;
    (database, proxy, conn.expect("a connection"))
}

/// BEGIN and the lock, and COMMIT.
#[test]
fn lock_without_wait_takes_two_round_trips_with_commit() {
    run(async {
        let (_database, proxy, mut conn) = connect().await;
        for retention in [Retention::Transient, Retention::Kept] {
            for lock in [LockRequest::new("a"), LockRequest::all(["a", "b", "c"])] {
                let lock = lock.retention(retention);
                let mut locked = 0;
                // The first time prepares the statements.
                for _ in 0..2 {
                    let work = async |_: &mut AsyncPgConnection| Ok::<_, Error>(());
                    let tried = conn.try_with_object_lock(lock.clone(), work);
                    let tried = async { assert_eq!(tried.await.expect("no error"), Some(())) };
                    locked = proxy.count_async(tried).await;
                }
                assert_eq!(locked, 2, "{lock:?}");
            }
        }
    });
}

/// A refusal leaves no transaction behind.
#[test]
fn refused_lock_takes_two_round_trips_with_rollback() {
    run(async {
        let (database, proxy, mut conn) = connect().await;
        let holder = AsyncPgConnection::establish(&database.url()).await;
        let mut holder = holder.expect("a connection");
        for retention in [Retention::Transient, Retention::Kept] {
            let lock = LockRequest::new("a").retention(retention);
            // The first time makes the row.
            let made = conn.with_object_lock(lock.clone(), async |_| Ok::<_, Error>(()));
            made.await.expect("free");
            let held = async |_: &mut AsyncPgConnection| {
                let mut refused = 0;
                for _ in 0..2 {
                    let work = async |_: &mut AsyncPgConnection| Ok::<_, Error>(());
                    let tried = conn.try_with_object_lock(lock.clone(), work);
                    let tried = async { assert_eq!(tried.await.expect("no error"), None) };
                    refused = proxy.count_async(tried).await;
                }
                Ok::<_, Error>(refused)
            };
            let refused = holder.with_object_lock(lock.clone(), held).await;
            assert_eq!(refused.expect("free"), 2, "{retention:?}");
            let status = AnsiTransactionManager::transaction_manager_status_mut(&mut conn);
            assert_eq!(status.transaction_depth().ok(), Some(None));
        }
    });
}
