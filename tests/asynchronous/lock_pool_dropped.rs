//! Requests of a `LockPool` whose futures are dropped.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use diesel::sql_types::Text;
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncMysqlConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_locks::{Error, LockPool};
use futures_util::TryStreamExt;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::locked::{Locked, WAIT, Work, await_waiters, nothing, result_of};
use crate::support::after::After;
use crate::support::blocker::Blocker;
use crate::support::dropped::{End, poll_then_drop};
use crate::support::engine::{BoxFuture, Connections, Engine};
use crate::support::mysql::Mysql;
use crate::support::pools::{Bb8, Deadpool, Kind, Locks};
use crate::support::watch::Watch;

/// More polls than a request needs that does not wait.
const MOST_POLLS: usize = 80;

/// Polls of a request that waits: several attempts.
const POLLS_OF_WAITS: usize = 20;

/// Writes two rows, with a pause between them.
pub(crate) async fn write<C: SimpleAsyncConnection + Send>(
    conn: &mut C,
    attempt: usize,
) -> Result<(), Error> {
    for part in 0..2 {
        let sql = format!("INSERT INTO written VALUES ({attempt}, {part})");
        conn.batch_execute(&sql).await?;
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn writes<E: Engine>(attempt: usize) -> Work<E::Conn> {
    Box::new(move |conn| Box::pin(write(conn, attempt)))
}

fn never() -> BoxFuture<'static, bool> {
    Box::pin(async { false })
}

/// Checks that it is free, what was written, and that the next request gets it on a clean connection.
async fn check<E: Engine, K: Kind>(
    locked: Locked,
    locks: &Locks<E, K>,
    watch: &Watch<E>,
    session: Option<i64>,
    place: &str,
) {
    let after = After {
        watch,
        session,
        place,
    };
    after.until_quiet().await;
    after.until_free(&locked.held()).await;
    assert_eq!(locks.requests(), [], "{place}");
    let next = locked.with(locks, WAIT, nothing()).await;
    next.unwrap_or_else(|error| panic!("{place}: {error:?}"));
    after.check_next(&mut locks.pool().take().await).await;
}

/// The session of the only connection of the pool.
async fn session_of<E: Engine, K: Kind>(locks: &Locks<E, K>) -> Option<i64> {
    let mut conn = locks.pool().take().await;
    E::session(&mut conn).await
}

/// After 0, 1, 2 .. polls, until it is ready.
pub(crate) async fn at_each_poll<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = E::new();
        let watch = Watch::new(&database);
        let locks = LockPool::new(K::pool(&database, 1).await);
        let mut is_ready = false;
        for polls in 0..MOST_POLLS {
            let place = format!("{locked:?}, dropped after {polls} polls");
            let session = session_of::<E, K>(&locks).await;
            let request = locked.with(&locks, WAIT, writes::<E>(polls));
            let (end, _) = poll_then_drop(request, polls, &never).await;
            is_ready = match end {
                End::Dropped => false,
                End::Ready(Ok(())) => true,
                end => panic!("{place}: {end:?}"),
            };
            check::<E, K>(locked, &locks, &watch, session, &place).await;
            let written = watch.written(polls).await;
            assert!(
                written == 2 || (written == 0 && !is_ready),
                "{place}: {written}"
            );
            if is_ready {
                break;
            }
        }
        assert!(is_ready, "{locked:?} does not end");
    }
}

/// The first request in the queue, which makes attempts.
pub(crate) async fn while_another_holds_it<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = Arc::new(E::new());
        let watch = Watch::new(&*database);
        let locks = LockPool::new(K::pool(&*database, 1).await);
        for polls in 0..POLLS_OF_WAITS {
            let place = format!("{locked:?}, held, dropped after {polls} polls");
            let session = session_of::<E, K>(&locks).await;
            let blocker = Blocker::acquire(&database, &locked.held()).await;
            let request = locked.with(&locks, WAIT, writes::<E>(polls));
            let (end, _) = poll_then_drop(request, polls, &never).await;
            assert!(matches!(end, End::Dropped), "{place}: {end:?}");
            blocker.release().await;
            check::<E, K>(locked, &locks, &watch, session, &place).await;
            assert_eq!(watch.written(polls).await, 0, "{place}");
        }
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    #[expect(dead_code, reason = "it is large")]
    text: String,
}

/// About 900 KB.
const LARGE: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) \
                     SELECT REPEAT('x', 1000) AS text FROM n";

/// While the rows of a large result arrive: before the client has read them, it sends nothing.
async fn while_rows_arrive<K: Kind>() {
    for locked in Locked::all() {
        let database = Mysql::new();
        let watch = Watch::new(&database);
        let locks = LockPool::new(K::pool(&database, 1).await);
        for rows in 0..3 {
            let place = format!("{locked:?}, dropped after {rows} rows");
            let session = session_of::<Mysql, K>(&locks).await;
            let (read, is_read) = oneshot::channel::<()>();
            let work: Work<AsyncMysqlConnection> = Box::new(move |conn| {
                Box::pin(async move {
                    write(conn, rows).await?;
                    let mut stream = sql_query(LARGE).load_stream::<Row>(conn).await?;
                    for _ in 0..rows {
                        stream.try_next().await?;
                    }
                    read.send(()).expect("the test waits");
                    pending().await
                })
            });
            let request = tokio::spawn(locked.with(&locks, WAIT, work));
            is_read.await.expect("it is free");
            request.abort();
            check::<Mysql, K>(locked, &locks, &watch, session, &place).await;
            assert_eq!(watch.written(rows).await, 0, "{place}");
        }
    }
}

#[tokio::test]
async fn while_rows_arrive_of_mysql_on_bb8() {
    while_rows_arrive::<Bb8>().await;
}

#[tokio::test]
async fn while_rows_arrive_of_mysql_on_deadpool() {
    while_rows_arrive::<Deadpool>().await;
}

/// One that waits behind another one, and one whose transaction others wait for.
pub(crate) async fn in_the_queue<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let database = E::new();
        let watch = Watch::new(&database);
        let locks = LockPool::new(K::pool(&database, 1).await);
        for polls in 0..4 {
            let place = format!("{locked:?}, second, dropped after {polls} polls");
            let session = session_of::<E, K>(&locks).await;
            let (held, is_held) = oneshot::channel::<()>();
            let work: Work<E::Conn> = Box::new(move |conn| {
                Box::pin(async move {
                    write(conn, polls).await?;
                    held.send(()).expect("the test waits");
                    pending().await
                })
            });
            let holder = tokio::spawn(locked.with(&locks, WAIT, work));
            is_held.await.expect("it is free");
            let mut second = locked.with(&locks, WAIT, nothing());
            for _ in 0..polls {
                let short = Duration::from_millis(5);
                let waits = tokio::time::timeout(short, &mut second).await;
                assert!(waits.is_err(), "{place}: it is held");
            }
            let before = locks.waiting();
            let third = tokio::spawn(locked.with(&locks, WAIT, nothing()));
            await_waiters(&locks, before + 1).await;
            drop(second);
            await_waiters(&locks, 1).await;
            holder.abort();
            result_of(third).await.expect("it comes free");
            check::<E, K>(locked, &locks, &watch, session, &place).await;
            assert_eq!(watch.written(polls).await, 0, "{place}");
        }
    }
}
