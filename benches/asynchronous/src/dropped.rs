//! How long it takes until another connection has an object lock, after the future was dropped that held it or waited for it.

use std::future::pending;
use std::ops::DerefMut;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use diesel::{ConnectionError, MysqlConnection, PgConnection, SqliteConnection};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, bb8, deadpool};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{
    AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, SimpleAsyncConnection,
};
use diesel_locks::Error;
use diesel_locks::prelude::*;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::harness::{Database, Engine, Report, Samples, name};

/// How long a future waits for the lock, or for its statement, before it is dropped.
const PAUSE: Duration = Duration::from_millis(50);

/// What is promised.
const PROMISED_MS: f64 = 100.0;

const LOCK: &str = "dropped";

/// A connection, of a pool or not.
type Taken<C> = Box<dyn DerefMut<Target = C> + Send>;
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where connections come from.
struct Source<C> {
    name: &'static str,
    take: Box<dyn Fn() -> BoxFuture<'static, Result<Taken<C>>>>,
}

/// Where a future is dropped.
#[derive(Clone, Copy, ValueEnum)]
enum Place {
    /// The lock is free.
    #[value(name = "(not dropped)")]
    Nowhere,
    /// In the database. The holder commits at the same time.
    #[value(name = "waits for the lock")]
    Waiting,
    /// It would run for much longer.
    #[value(name = "a statement of the closure runs")]
    Statement,
    #[value(name = "the closure is idle")]
    Closure,
}

impl<C> Source<C> {
    fn new<F>(name: &'static str, take: impl Fn() -> F + 'static) -> Self
    where
        F: Future<Output = Result<Taken<C>>> + Send + 'static,
    {
        let take = Box::new(move || -> BoxFuture<'static, _> { Box::pin(take()) });
        Self { name, take }
    }
}

/// A macro, because the bounds of the pools are long.
macro_rules! sources {
    ($conn:ty, $url:expr, $setup:expr) => {{
        let (url, setup) = ($url.clone(), $setup);
        let config = move || {
            let mut config = ManagerConfig::<$conn>::default();
            config.custom_setup = Box::new(move |url| {
                let url = url.to_owned();
                Box::pin(async move {
                    let mut conn = <$conn>::establish(&url).await?;
                    if !setup.is_empty() {
                        let set = conn.batch_execute(setup).await;
                        set.map_err(ConnectionError::CouldntSetupConfiguration)?;
                    }
                    Ok(conn)
                })
            });
            config
        };
        let manager = || AsyncDieselConnectionManager::new_with_config(url.clone(), config());
        let of_bb8 = bb8::Pool::builder().max_size(2).build(manager()).await?;
        let of_deadpool = deadpool::Pool::builder(manager()).max_size(2).build()?;
        let url = url.clone();
        [
            Source::new("of no pool", move || {
                let url = url.clone();
                async move {
                    let conn = (config().custom_setup)(&url).await?;
                    anyhow::Ok(Box::new(Box::new(conn)) as Taken<$conn>)
                }
            }),
            Source::new("bb8", move || {
                let pool = of_bb8.clone();
                async move { anyhow::Ok(Box::new(pool.get_owned().await?) as Taken<$conn>) }
            }),
            Source::new("deadpool", move || {
                let pool = of_deadpool.clone();
                async move { anyhow::Ok(Box::new(pool.get().await?) as Taken<$conn>) }
            }),
        ]
    }};
}

pub(crate) fn measure(engine: Engine, rounds: usize, report: &mut Report) -> Result<()> {
    let title = format!(
        "ms from the drop of a future until another connection has the lock, {rounds} drops each"
    );
    let columns =
        format!("dropped while | connection | median | slowest | later than {PROMISED_MS:.0} ms");
    report.table(&title, &columns);
    Runtime::new()?.block_on(async {
        match engine {
            Engine::Postgres => {
                let database = Database::create::<PgConnection>()?;
                let sources = sources!(AsyncPgConnection, database.url, "");
                measure_on(&sources, rounds, "SELECT pg_sleep(3)", report).await
            }
            Engine::Mysql => {
                let database = Database::create::<MysqlConnection>()?;
                let sources = sources!(AsyncMysqlConnection, database.url, "");
                Box::pin(measure_on(&sources, rounds, "SELECT sleep(3)", report)).await
            }
            Engine::Sqlite => {
                let database = Database::create::<SqliteConnection>()?;
                let setup = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = NORMAL";
                let sources = sources!(SyncConnectionWrapper<SqliteConnection>, database.url, setup);
                // SQLite ends no statement early, so this one takes only about a quarter of a second.
                let long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) \
                            SELECT count(*) FROM n";
                measure_on(&sources, rounds, long, report).await
            }
        }
    })
}

async fn measure_on<C>(
    sources: &[Source<C>],
    rounds: usize,
    long: &str,
    report: &mut Report,
) -> Result<()>
where
    C: AsyncConnection + AsyncObjectLockExt + Send + 'static,
{
    for &place in Place::value_variants() {
        for source in sources {
            let mut holder = (sources[0].take)().await?;
            let mut next = (sources[0].take)().await?;
            let mut times = Samples::default();
            for _ in 0..rounds {
                let conn = (source.take)().await?;
                let time = drop_once(conn, &mut holder, &mut next, place, long).await?;
                times.push_time(time);
            }
            let slowest = times.percentile(100).unwrap_or_default();
            let late = times.iter().filter(|time| *time > PROMISED_MS).count();
            let median = times.median();
            report.row(&json!([name(&place), source.name, median, slowest, late]));
        }
    }
    Ok(())
}

/// Returns how long after the drop `next` has the lock.
async fn drop_once<C>(
    mut conn: Taken<C>,
    holder: &mut C,
    next: &mut C,
    place: Place,
    long: &str,
) -> Result<Duration>
where
    C: AsyncConnection + AsyncObjectLockExt + Send + 'static,
{
    let (begun, released, acquired) = (Notify::new(), Notify::new(), Notify::new());
    // The connection is dropped with it, as with the future of a request.
    let begins = &begun;
    let mut request = Box::pin(async move {
        let work = async |conn: &mut C| -> Result<(), Error> {
            conn.batch_execute("SELECT 1").await?;
            begins.notify_one();
            match place {
                Place::Statement => conn.batch_execute(long).await?,
                _ => pending().await,
            }
            Ok(())
        };
        conn.with_object_lock(LOCK, work).await
    });
    let acquire = async |next: &mut C, dropped: Instant| -> Result<Duration, Error> {
        let work = async |_: &mut C| -> Result<Duration, Error> { Ok(dropped.elapsed()) };
        next.with_object_lock(LOCK, work).await
    };
    match place {
        Place::Nowhere => {
            drop(request);
            return Ok(acquire(next, Instant::now()).await?);
        }
        Place::Waiting => {
            let hold = async |_: &mut C| -> Result<(), Error> {
                acquired.notify_one();
                released.notified().await;
                Ok(())
            };
            let holding = holder.with_object_lock(LOCK, hold);
            let drop_it = async {
                acquired.notified().await;
                if timeout(PAUSE, &mut request).await.is_ok() {
                    bail!("the lock was not held");
                }
                let dropped = Instant::now();
                drop(request);
                released.notify_one();
                Ok(acquire(next, dropped).await?)
            };
            let (ended, time) = tokio::join!(holding, drop_it);
            ended?;
            time
        }
        Place::Statement | Place::Closure => {
            tokio::select! {
                ended = &mut request => bail!("the closure has ended: {ended:?}"),
                () = begun.notified() => {}
            }
            if timeout(PAUSE, &mut request).await.is_ok() {
                bail!("the closure has ended");
            }
            let dropped = Instant::now();
            drop(request);
            Ok(acquire(next, dropped).await?)
        }
    }
}
