//! The time that a lock adds to a transaction that reads one row, with one connection.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel::connection::Connection;
use diesel::{MysqlConnection, PgConnection, QueryDsl, QueryResult, SqliteConnection};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};
use sqlx::postgres::{PgAdvisoryLock, PgConnection as SqlxConnection};
use tokio::runtime::{Builder, Runtime};

use crate::database::{Database, Engine, counters};
use crate::delay::url_with_delay;
use crate::rounds::{Variant, blocking, in_task, medians};

/// The transaction of each variant, which reads a row.
macro_rules! read_row {
    ($conn:expr) => {
        diesel_async::RunQueryDsl::execute(counters::table.find(1).select(counters::n), $conn).await
    };
}

const BLOCKING: &str = "blocking: transaction";
const ASYNC: &str = "async: transaction";
const SQLX: &str = "sqlx: transaction";

/// Variants of the blocking and the asynchronous client of an engine.
macro_rules! clients {
    ($runtime:ident, $url:expr, $blocking:ty, $nonblocking:ty) => {{
        let url: &str = $url;
        let runtime: &Runtime = $runtime;
        let row = || counters::table.find(1).select(counters::n);
        let mut bare = <$blocking as Connection>::establish(url)?;
        let mut locked = <$blocking as Connection>::establish(url)?;
        let mut kept = <$blocking as Connection>::establish(url)?;
        let connect = || runtime.block_on(<$nonblocking as AsyncConnection>::establish(url));
        let (async_bare, async_locked) = (connect()?, connect()?);
        let async_kept = connect()?;
        vec![
            Variant {
                name: BLOCKING,
                bare: BLOCKING,
                run: blocking(move || {
                    bare.transaction(|conn| diesel::RunQueryDsl::execute(row(), conn))?;
                    Ok(())
                }),
            },
            Variant {
                name: "blocking: object lock",
                bare: BLOCKING,
                run: blocking(move || {
                    locked.with_object_lock("a", |conn| -> Result<_, Error> {
                        Ok(diesel::RunQueryDsl::execute(row(), conn)?)
                    })?;
                    Ok(())
                }),
            },
            Variant {
                name: "blocking: kept lock",
                bare: BLOCKING,
                run: blocking(move || {
                    let request = LockRequest::new("b").retention(Retention::Kept);
                    kept.with_object_lock(request, |conn| -> Result<_, Error> {
                        Ok(diesel::RunQueryDsl::execute(row(), conn)?)
                    })?;
                    Ok(())
                }),
            },
            Variant {
                name: ASYNC,
                bare: ASYNC,
                run: in_task!(runtime, async_bare, {
                    let work =
                        async |conn: &mut $nonblocking| -> QueryResult<_> { read_row!(conn) };
                    async_bare.transaction(work).await?
                }),
            },
            Variant {
                name: "async: object lock",
                bare: ASYNC,
                run: in_task!(runtime, async_locked, {
                    let work =
                        async |conn: &mut $nonblocking| -> QueryResult<_> { read_row!(conn) };
                    async_locked.with_object_lock("c", work).await?
                }),
            },
            Variant {
                name: "async: kept lock",
                bare: ASYNC,
                run: in_task!(runtime, async_kept, {
                    let request = LockRequest::new("d").retention(Retention::Kept);
                    let work =
                        async |conn: &mut $nonblocking| -> QueryResult<_> { read_row!(conn) };
                    async_kept.with_object_lock(request, work).await?
                }),
            },
        ]
    }};
}

/// The runtime on which the tasks run, and in which the clients read from their sockets.
#[derive(Clone, Copy)]
enum Flavor {
    /// The thread that waits does all the work.
    CurrentThread,
    /// Tokio's default: worker threads, which wake the thread that waits.
    MultiThread,
}

impl Flavor {
    fn runtime(self) -> Result<Runtime> {
        Ok(match self {
            Self::CurrentThread => Builder::new_current_thread().enable_all().build()?,
            Self::MultiThread => Runtime::new()?,
        })
    }
}

pub(crate) fn measure(engine: Engine, rounds: usize, delay: Duration) -> Result<()> {
    for (flavor, name) in [
        (Flavor::CurrentThread, "a runtime of one thread"),
        (Flavor::MultiThread, "tokio's default runtime"),
    ] {
        let network = if delay.is_zero() {
            String::new()
        } else {
            format!(", {delay:?} of delay in each direction")
        };
        println!("\nOne connection, {name}, {rounds} rounds{network}:\n");
        measure_on(engine, rounds, delay, &flavor.runtime()?)?;
    }
    Ok(())
}

fn measure_on(engine: Engine, rounds: usize, delay: Duration, runtime: &Runtime) -> Result<()> {
    let database = Database::new(engine)?;
    let url = &match engine {
        Engine::Postgres | Engine::Mysql if !delay.is_zero() => {
            url_with_delay(&database.url, delay)?
        }
        _ => database.url.clone(),
    };
    let mut variants = match engine {
        Engine::Postgres => {
            let mut variants = clients!(runtime, url, PgConnection, AsyncPgConnection);
            variants.extend(by_hand(runtime, url)?);
            variants
        }
        Engine::Mysql => clients!(runtime, url, MysqlConnection, AsyncMysqlConnection),
        Engine::Sqlite => clients!(
            runtime,
            url,
            SqliteConnection,
            SyncConnectionWrapper<SqliteConnection>
        ),
    };
    let medians = medians(&mut variants, rounds)?;
    println!(
        "| | µs per transaction that reads one row | added to the client's bare transaction | to the blocking object lock |"
    );
    println!("|---|---|---|---|");
    let blocking_lock = medians[1];
    for (variant, median) in variants.iter().zip(&medians) {
        let bare = variants.iter().position(|other| other.name == variant.bare);
        let added = bare.map(|bare| median - medians[bare]);
        let added = added.map_or_else(String::new, |added| format!("{added:+.0}"));
        let ratio = median / blocking_lock;
        println!("| {} | {median:.0} | {added} | {ratio:.2} |", variant.name);
    }
    Ok(())
}

/// What an application would write without this crate.
fn by_hand<'a>(runtime: &'a Runtime, url: &'a str) -> Result<Vec<Variant<'a>>> {
    use sqlx::Connection as _;

    const ACQUIRE: &str = "SELECT pg_advisory_xact_lock(4711)";
    const READ: &str = "SELECT n FROM counters WHERE id = 1";
    static LOCK: LazyLock<PgAdvisoryLock> = LazyLock::new(|| PgAdvisoryLock::new("benchmark"));

    let diesel = runtime.block_on(AsyncPgConnection::establish(url))?;
    let bare = runtime.block_on(SqlxConnection::connect(url))?;
    let locked = runtime.block_on(SqlxConnection::connect(url))?;
    Ok(vec![
        Variant {
            name: "async, by hand: advisory lock in a transaction",
            bare: ASYNC,
            run: in_task!(runtime, diesel, {
                let work = async |conn: &mut AsyncPgConnection| -> QueryResult<_> {
                    let acquire = diesel::sql_query(ACQUIRE);
                    diesel_async::RunQueryDsl::execute(acquire, conn).await?;
                    read_row!(conn)
                };
                diesel.transaction(work).await?
            }),
        },
        Variant {
            name: SQLX,
            bare: SQLX,
            run: in_task!(runtime, bare, {
                let mut transaction = bare.begin().await?;
                sqlx::query(READ).execute(&mut *transaction).await?;
                transaction.commit().await?;
            }),
        },
        Variant {
            name: "sqlx: PgAdvisoryLock around a transaction",
            bare: SQLX,
            run: in_task!(runtime, locked, {
                let mut guard = LOCK.acquire(locked).await?;
                let mut transaction = guard.as_mut().begin().await?;
                sqlx::query(READ).execute(&mut *transaction).await?;
                transaction.commit().await?;
                locked = guard.release_now().await?;
            }),
        },
    ])
}
