//! Many tasks on a pool of 8 asynchronous connections, and as many threads on a pool of 8 blocking ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use diesel::r2d2::{ConnectionManager, Pool as BlockingPool, R2D2Connection};
use diesel::{Connection, MysqlConnection, PgConnection};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, Retention};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::harness::{Database, Engine, Report, Samples, name};

const CONNECTIONS: u32 = 8;
const TIME: Duration = Duration::from_secs(1);

/// Which object the asker with this number locks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ids {
    /// They show what of a ratio is the clients' and the pools' own.
    #[value(name = "none: bare transactions")]
    None,
    Many,
    One,
}

impl Ids {
    fn request(self, number: usize) -> Option<LockRequest> {
        let request = match self {
            Self::None => return None,
            Self::Many => LockRequest::new(ObjectId::new("many", number)),
            Self::One => LockRequest::new("one"),
        };
        Some(request.retention(Retention::Kept))
    }
}

/// `$queued`: whether tasks wait in the queue of a `LockPool`, with a connection for each attempt, and not on one of the pool.
/// A macro, because a generic function over asynchronous connections can't be spawned.
macro_rules! tasks {
    ($conn:ty, $url:expr, $askers:expr, $ids:expr, $queued:expr) => {{
        let run = || -> Result<Figures> {
            let runtime = Runtime::new()?;
            let manager = AsyncDieselConnectionManager::<$conn>::new($url.as_str());
            let pool: Pool<$conn> = Pool::builder(manager)
                .max_size(CONNECTIONS as usize)
                .build()?;
            let (done, stop) = (
                Arc::new(AtomicU64::new(0)),
                Arc::new(AtomicBool::new(false)),
            );
            let (askers, ids, queued) = ($askers, $ids, $queued);
            let locks = LockPool::new(pool.clone());
            runtime.block_on(async {
                // As r2d2, which opens all connections when the pool is built.
                let mut opened = Vec::new();
                for _ in 0..CONNECTIONS {
                    opened.push(pool.get().await?);
                }
                drop(opened);
                let started = Instant::now();
                let mut running = Vec::new();
                for number in 0..askers {
                    let (pool, locks) = (pool.clone(), locks.clone());
                    let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
                    running.push(tokio::spawn(async move {
                        while !stop.load(Ordering::Relaxed) {
                            let work = async |_: &mut $conn| -> Result<(), Error> { Ok(()) };
                            let ended = match ids.request(number) {
                                Some(request) if queued => {
                                    locks.with_object_lock(request, work).await
                                }
                                Some(request) => {
                                    let mut conn = pool.get().await.expect("a connection");
                                    conn.with_object_lock(request, work).await
                                }
                                None => {
                                    let mut conn = pool.get().await.expect("a connection");
                                    (*conn).transaction(work).await
                                }
                            };
                            ended.expect("a transaction");
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }));
                }
                let mut times = Samples::default();
                // At least one, however long it takes.
                while times.len() == 0 || started.elapsed() < TIME {
                    use diesel_async::SimpleAsyncConnection;

                    let asked = Instant::now();
                    let mut conn = pool.get().await?;
                    conn.batch_execute("SELECT 1").await?;
                    drop(conn);
                    times.push_time(asked.elapsed());
                    sleep(Duration::from_millis(5)).await;
                }
                stop.store(true, Ordering::Relaxed);
                for task in running {
                    task.await?;
                }
                Ok((per_second(&done, started), times.median()))
            })
        };
        run()
    }};
}

pub(crate) fn measure(engine: Engine, rounds: usize, report: &mut Report) -> Result<()> {
    let database = match engine {
        Engine::Postgres => Database::create::<PgConnection>()?,
        _ => Database::create::<MysqlConnection>()?,
    };
    let title = format!(
        "{CONNECTIONS} connections, kept locks, {rounds} rounds of {TIME:?}: transactions per second, and the median ms of an \
         unrelated transaction on the same pool"
    );
    let columns = "askers | ids | threads and r2d2 | tasks and deadpool | tasks and `LockPool` | tasks / threads | \
                   unrelated: threads | unrelated: tasks | unrelated: `LockPool`";
    report.table(&title, columns);
    for (askers, ids) in [
        (64, Ids::None),
        (64, Ids::Many),
        (64, Ids::One),
        (512, Ids::Many),
        (512, Ids::One),
        (4096, Ids::Many),
        (4096, Ids::One),
    ] {
        let mut figures = [(); 3].map(|()| (Samples::default(), Samples::default()));
        for _ in 0..rounds {
            let url = &database.url;
            let ways = [false, true];
            let (threads, [tasks, queue]) = match engine {
                Engine::Postgres => (
                    threads::<PgConnection>(url, askers, ids)?,
                    ways.map(|queued| tasks!(AsyncPgConnection, url, askers, ids, queued)),
                ),
                _ => (
                    threads::<MysqlConnection>(url, askers, ids)?,
                    ways.map(|queued| tasks!(AsyncMysqlConnection, url, askers, ids, queued)),
                ),
            };
            for ((speeds, unrelated), measured) in
                figures.iter_mut().zip([Ok(threads), tasks, queue])
            {
                let (per_second, median) = measured?;
                speeds.push(per_second);
                unrelated.push(median);
            }
        }
        let [threads, tasks, queue] =
            figures.map(|(speeds, unrelated)| (speeds.median(), unrelated.median()));
        report.row(&json!([
            askers,
            name(&ids),
            threads.0,
            tasks.0,
            queue.0,
            tasks.0 / threads.0,
            threads.1,
            tasks.1,
            queue.1,
        ]));
    }
    Ok(())
}

/// Transactions per second, and the median ms of an unrelated one.
type Figures = (f64, f64);

fn threads<C>(url: &str, askers: usize, ids: Ids) -> Result<Figures>
where
    C: ObjectLockExt + R2D2Connection + 'static,
{
    let pool = BlockingPool::builder()
        .max_size(CONNECTIONS)
        .connection_timeout(Duration::from_secs(60))
        .build(ConnectionManager::<C>::new(url))?;
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let unrelated = thread::scope(|scope| {
        for number in 0..askers {
            let (pool, done, stop) = (&pool, &done, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut conn = pool.get().expect("a connection");
                    let ended: Result<(), Error> = match ids.request(number) {
                        Some(request) => conn.with_object_lock(request, |_| Ok(())),
                        None => conn.transaction(|_| Ok(())),
                    };
                    ended.expect("a transaction");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut times = Samples::default();
        while times.len() == 0 || started.elapsed() < TIME {
            let asked = Instant::now();
            let mut conn = pool.get().expect("a connection");
            conn.batch_execute("SELECT 1").expect("SELECT 1");
            drop(conn);
            times.push_time(asked.elapsed());
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        times.median()
    });
    Ok((per_second(&done, started), unrelated))
}

fn per_second(done: &AtomicU64, started: Instant) -> f64 {
    let done = u32::try_from(done.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
    f64::from(done) / started.elapsed().as_secs_f64()
}
