//! Checks of borrowed connections that are not finished. MySQL alone has checks.

use std::sync::mpsc::channel;

use diesel::connection::InstrumentationEvent;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, bb8, deadpool,
};
use diesel_async::{AsyncConnection, AsyncMysqlConnection};
use diesel_locks::{Async, LockPool, Pool};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::locked::{Locked, WAIT, nothing};
use crate::support::after::After;
use crate::support::dropped::LONG;
use crate::support::engine::{Connections, Engine};
use crate::support::mysql::Mysql;
use crate::support::runtime::with_threads;
use crate::support::watch::Watch;

type Conn = AsyncMysqlConnection;

/// A pool that lends its connections without a check of its own, which would notice most answers to another statement.
fn manager(database: &Mysql) -> AsyncDieselConnectionManager<Conn> {
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    AsyncDieselConnectionManager::new_with_config(database.url(), config)
}

/// Whether this crate asks for a number.
fn is_check(event: &InstrumentationEvent<'_>) -> bool {
    let InstrumentationEvent::StartQuery { query, .. } = event else {
        return false;
    };
    query.to_string().starts_with("SELECT ?")
}

/// The runtime of a request is shut down while the request checks the connection. The next user of the pool gets no answer to
/// that check.
async fn shut_down_in_a_check<P>(database: &Mysql, pool: P)
where
    P: Pool<Style = Async, Connection = Conn> + Connections<Conn>,
{
    let watch = Watch::new(database);
    let locks = LockPool::new(pool);
    for locked in Locked::with_free() {
        let place = format!("{locked:?}");
        // Opens the connection in this runtime, which is not shut down, and prepares the statements.
        let first = locked.with(&locks, WAIT, nothing()).await;
        first.expect("it is free");
        let (check, is_checked) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let mut conn = locks.pool().take().await;
        let session = Mysql::session(&mut conn).await;
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if is_check(&event) && check.send(()).is_ok() {
                may_go_on.recv().expect("the test says when");
            }
        });
        drop(conn);
        let runtime = with_threads();
        runtime.spawn(locked.with(&locks, WAIT, nothing()));
        let checked = spawn_blocking(move || is_checked.recv_timeout(LONG)).await;
        checked.expect("no panic").expect("a check");
        // In the poll in which the check is sent: it is dropped after that.
        runtime.shutdown_background();
        go_on.send(()).expect("the check waits");
        let next = timeout(LONG, locks.pool().take()).await;
        let after = After {
            watch: &watch,
            session,
            place: &place,
        };
        after.check_next(&mut next.expect("a connection")).await;
        after.until_quiet().await;
    }
}

#[tokio::test]
async fn runtime_is_shut_down_in_a_check_of_bb8() {
    let database = Mysql::new();
    let pool = bb8::Pool::builder().max_size(1).build(manager(&database));
    shut_down_in_a_check(&database, pool.await.expect("a pool")).await;
}

#[tokio::test]
async fn runtime_is_shut_down_in_a_check_of_deadpool() {
    let database = Mysql::new();
    let pool = deadpool::Pool::builder(manager(&database)).max_size(1);
    shut_down_in_a_check(&database, pool.build().expect("a pool")).await;
}
