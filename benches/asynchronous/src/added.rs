//! The time that a lock adds to a transaction that reads one row, with one connection.

use anyhow::{Context, Result};
use diesel::connection::Connection;
use diesel::{MysqlConnection, PgConnection, QueryDsl, QueryResult, SqliteConnection};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};
use sqlx::postgres::{PgAdvisoryLock, PgConnection as SqlxConnection};
use tokio::runtime::Runtime;

use crate::database::{Database, Engine, counters};
use crate::rounds::{Variant, medians};

/// Variants of a client: its bare transaction comes first.
macro_rules! clients {
    ($runtime:ident, $url:expr, $blocking:ty, $nonblocking:ty) => {{
        let url: &str = $url;
        let runtime: &Runtime = $runtime;
        let mut bare = <$blocking as Connection>::establish(url)?;
        let mut locked = <$blocking as Connection>::establish(url)?;
        let mut kept = <$blocking as Connection>::establish(url)?;
        let connect = || runtime.block_on(<$nonblocking as AsyncConnection>::establish(url));
        let (mut async_bare, mut async_locked) = (connect()?, connect()?);
        let (mut async_kept, mut async_rows) = (connect()?, connect()?);
        let row = || counters::table.find(1).select(counters::n);
        vec![
            Variant {
                name: "blocking: transaction",
                cycle: Box::new(move || {
                    Ok(bare
                        .transaction(|conn| diesel::RunQueryDsl::execute(row(), conn))
                        .map(drop)?)
                }),
            },
            Variant {
                name: "blocking: object lock",
                cycle: Box::new(move || {
                    let done: Result<_, Error> = locked.with_object_lock("a", |conn| {
                        Ok(diesel::RunQueryDsl::execute(row(), conn)?)
                    });
                    Ok(done.map(drop)?)
                }),
            },
            Variant {
                name: "blocking: kept lock",
                cycle: Box::new(move || {
                    let request = LockRequest::new("b").retention(Retention::Kept);
                    let done: Result<_, Error> = kept.with_object_lock(request, |conn| {
                        Ok(diesel::RunQueryDsl::execute(row(), conn)?)
                    });
                    Ok(done.map(drop)?)
                }),
            },
            Variant {
                name: "async: transaction",
                cycle: Box::new(move || {
                    runtime.block_on(async {
                        let done: QueryResult<_> = async_bare
                            .transaction(async |conn| {
                                diesel_async::RunQueryDsl::execute(row(), conn).await
                            })
                            .await;
                        Ok(done.map(drop)?)
                    })
                }),
            },
            Variant {
                name: "async: object lock",
                cycle: Box::new(move || {
                    runtime.block_on(async {
                        let done: Result<_, Error> = async_locked
                            .with_object_lock("c", async |conn| {
                                Ok(diesel_async::RunQueryDsl::execute(row(), conn).await?)
                            })
                            .await;
                        Ok(done.map(drop)?)
                    })
                }),
            },
            Variant {
                name: "async: kept lock",
                cycle: Box::new(move || {
                    runtime.block_on(async {
                        let request = LockRequest::new("d").retention(Retention::Kept);
                        let done: Result<_, Error> = async_kept
                            .with_object_lock(request, async |conn| {
                                Ok(diesel_async::RunQueryDsl::execute(row(), conn).await?)
                            })
                            .await;
                        Ok(done.map(drop)?)
                    })
                }),
            },
            Variant {
                name: "async: object lock and rows",
                cycle: Box::new(move || {
                    runtime.block_on(async {
                        let done: Result<_, Error> = async_rows
                            .with_object_lock_and_rows("e", row(), async |_, rows: Vec<i64>| {
                                Ok(rows.len())
                            })
                            .await;
                        Ok(done.map(drop)?)
                    })
                }),
            },
        ]
    }};
}

pub(crate) fn measure(engine: Engine, rounds: usize) -> Result<()> {
    let runtime = &Runtime::new()?;
    let database = Database::new(engine)?;
    let url = database.url.as_str();
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
    println!("One connection, {rounds} rounds, µs per transaction that reads one row:\n");
    println!("| | µs | added to the client's bare transaction | to the blocking object lock |");
    println!("|---|---|---|---|");
    let blocking = medians[1];
    let mut bare = medians[0];
    for (variant, median) in variants.iter().zip(&medians) {
        if variant.name.ends_with("transaction") {
            bare = *median;
        }
        let (added, ratio) = (median - bare, median / blocking);
        println!(
            "| {} | {median:.0} | {added:+.0} | {ratio:.2} |",
            variant.name
        );
    }
    Ok(())
}

/// What an application would write without this crate.
fn by_hand<'a>(runtime: &'a Runtime, url: &'a str) -> Result<Vec<Variant<'a>>> {
    use sqlx::Connection as _;

    const ACQUIRE: &str = "SELECT pg_advisory_xact_lock(4711)";
    const READ: &str = "SELECT n FROM counters WHERE id = 1";

    let mut diesel = runtime.block_on(AsyncPgConnection::establish(url))?;
    let mut bare = runtime.block_on(SqlxConnection::connect(url))?;
    let mut locked = Some(runtime.block_on(SqlxConnection::connect(url))?);
    let lock = PgAdvisoryLock::new("benchmark");
    Ok(vec![
        Variant {
            name: "async, by hand: advisory lock in a transaction",
            cycle: Box::new(move || {
                runtime.block_on(async {
                    let done: QueryResult<_> = diesel
                        .transaction(async |conn| {
                            diesel_async::RunQueryDsl::execute(diesel::sql_query(ACQUIRE), conn)
                                .await?;
                            {
                                let row = counters::table.find(1).select(counters::n);
                                diesel_async::RunQueryDsl::execute(row, conn).await
                            }
                        })
                        .await;
                    Ok(done.map(drop)?)
                })
            }),
        },
        Variant {
            name: "sqlx: transaction",
            cycle: Box::new(move || {
                runtime.block_on(async {
                    let mut transaction = bare.begin().await?;
                    sqlx::query(READ).execute(&mut *transaction).await?;
                    Ok(transaction.commit().await?)
                })
            }),
        },
        Variant {
            name: "sqlx: PgAdvisoryLock around a transaction",
            cycle: Box::new(move || {
                runtime.block_on(async {
                    let conn = locked.take().context("a connection")?;
                    let mut guard = lock.acquire(conn).await?;
                    let mut transaction = guard.as_mut().begin().await?;
                    sqlx::query(READ).execute(&mut *transaction).await?;
                    transaction.commit().await?;
                    locked = Some(guard.release_now().await?);
                    Ok(())
                })
            }),
        },
    ])
}
