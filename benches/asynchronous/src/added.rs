//! The time that a lock adds to a transaction that reads one row, with one connection.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel::connection::Connection;
use diesel::{MysqlConnection, PgConnection, QueryDsl, QueryResult, SqliteConnection};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::Retention;
use diesel_locks::prelude::*;
use serde_json::json;
use sqlx::postgres::{PgAdvisoryLock, PgConnection as SqlxConnection};
use tokio::runtime::{Builder, Runtime};

use crate::delay::url_with_delay;
use crate::harness::{Connections, Engine, Plan, Report, Samples, order};

diesel::table! {
    /// What the transactions read.
    bonds (id) {
        id -> BigInt,
        price -> BigInt,
    }
}

type Wrapper = SyncConnectionWrapper<SqliteConnection>;

const WARM_UP: Duration = Duration::from_millis(20);

const BLOCKING: &str = "blocking: transaction";
const ASYNC: &str = "async: transaction";
const SQLX: &str = "sqlx: transaction";

/// A variant by its name, which runs its transactions.
struct Variant<'a> {
    name: &'static str,
    /// The name of the same client's transaction without a lock.
    bare: &'static str,
    run: Run<'a>,
}

/// Runs transactions for this time, and one at least. Returns the µs for each.
type Run<'a> = Box<dyn FnMut(Duration) -> Result<f64> + 'a>;

/// The µs for each of the transactions.
fn micros(started: Instant, transactions: u32) -> f64 {
    started.elapsed().as_secs_f64() * 1e6 / f64::from(transactions)
}

/// Runs a transaction that blocks, again and again.
fn blocking<'a>(mut transaction: impl FnMut() -> QueryResult<usize> + 'a) -> Run<'a> {
    Box::new(move |time| {
        let (started, mut transactions) = (Instant::now(), 0);
        while transactions == 0 || started.elapsed() < time {
            transaction()?;
            transactions += 1;
        }
        Ok(micros(started, transactions))
    })
}

/// Runs `$transaction` again and again in a task, as a service does, with a connection that is mutable in it as `$conn`. A
/// macro, because a closure that returns a future hides whether that is `Send`.
macro_rules! in_task {
    ($runtime:ident, $conn:ident, $transaction:expr) => {{
        let mut kept = Some($conn);
        let run: Run<'_> = Box::new(move |time| {
            let mut $conn = kept.take().context("a connection")?;
            let task = $runtime.spawn(async move {
                let (started, mut transactions) = (Instant::now(), 0);
                while transactions == 0 || started.elapsed() < time {
                    $transaction;
                    transactions += 1;
                }
                anyhow::Ok(($conn, micros(started, transactions)))
            });
            let (conn, micros) = $runtime.block_on(task)??;
            kept = Some(conn);
            Ok(micros)
        });
        run
    }};
}

/// The transaction of each asynchronous variant, which reads a row.
macro_rules! read_row {
    ($conn:expr) => {
        diesel_async::RunQueryDsl::execute(bonds::table.find(1).select(bonds::price), $conn).await
    };
}

/// Variants of the blocking and the asynchronous client of an engine.
macro_rules! clients {
    ($runtime:ident, $url:expr, $blocking:ty, $nonblocking:ty) => {{
        let (url, runtime): (&str, &Runtime) = ($url, $runtime);
        let kept = |id| Some(LockRequest::new(id).retention(Retention::Kept));
        let mut variants = Vec::new();
        for (name, request) in [
            (BLOCKING, None),
            ("blocking: object lock", Some("a".into())),
            ("blocking: kept lock", kept("b")),
        ] {
            let request: Option<LockRequest> = request;
            let mut conn = <$blocking as Connection>::establish(url)?;
            let read = |conn: &mut $blocking| {
                diesel::RunQueryDsl::execute(bonds::table.find(1).select(bonds::price), conn)
            };
            let run = blocking(move || match &request {
                None => conn.transaction(read),
                Some(request) => conn.with_object_lock(request.clone(), read),
            });
            let bare = BLOCKING;
            variants.push(Variant { name, bare, run });
        }
        for (name, request) in [
            (ASYNC, None),
            ("async: object lock", Some("c".into())),
            ("async: kept lock", kept("d")),
        ] {
            let request: Option<LockRequest> = request;
            let conn = runtime.block_on(<$nonblocking as AsyncConnection>::establish(url))?;
            let both = (conn, request);
            let run = in_task!(runtime, both, {
                let (conn, request) = &mut both;
                let read = async |conn: &mut $nonblocking| -> QueryResult<_> { read_row!(conn) };
                match request {
                    None => conn.transaction(read).await?,
                    Some(request) => conn.with_object_lock(request.clone(), read).await?,
                }
            });
            let bare = ASYNC;
            variants.push(Variant { name, bare, run });
        }
        variants
    }};
}

/// On the runtimes on which tasks run, and in which the clients read from their sockets.
pub(crate) fn measure(
    engine: Engine,
    plan: Plan,
    delay: Duration,
    report: &mut Report,
) -> Result<()> {
    for (runtime, name) in [
        // The thread that waits does all the work.
        (
            Builder::new_current_thread().enable_all().build()?,
            "a runtime of one thread",
        ),
        // Worker threads, which wake the thread that waits.
        (Runtime::new()?, "tokio's default runtime"),
    ] {
        let network = match delay {
            Duration::ZERO => String::new(),
            delay => format!(", {delay:?} of delay in each direction"),
        };
        let title = format!("One connection, {name}{network}");
        let columns = "variant | µs per transaction that reads one row | added to the client's bare transaction | \
                       to the blocking object lock";
        report.table(&title, columns);
        measure_on(engine, plan, delay, &runtime, report)?;
    }
    Ok(())
}

fn measure_on(
    engine: Engine,
    plan: Plan,
    delay: Duration,
    runtime: &Runtime,
    report: &mut Report,
) -> Result<()> {
    let through_network = |url: &str| match delay {
        Duration::ZERO => Ok(url.to_owned()),
        delay => url_with_delay(url, delay),
    };
    match engine {
        Engine::Postgres => {
            let conns = Connections::<PgConnection>::new(1)?;
            let url = &through_network(&conns.database.url)?;
            let mut variants = clients!(runtime, url, PgConnection, AsyncPgConnection);
            variants.extend(by_hand(runtime, url)?);
            print(variants, plan, report)
        }
        Engine::Mysql => {
            let conns = Connections::<MysqlConnection>::new(1)?;
            let url = &through_network(&conns.database.url)?;
            print(
                clients!(runtime, url, MysqlConnection, AsyncMysqlConnection),
                plan,
                report,
            )
        }
        Engine::Sqlite => {
            let conns = Connections::<SqliteConnection>::new(1)?;
            let url = &conns.database.url;
            print(
                clients!(runtime, url, SqliteConnection, Wrapper),
                plan,
                report,
            )
        }
    }
}

/// Runs the variants in turn, and prints the median time of each.
fn print(mut variants: Vec<Variant<'_>>, plan: Plan, report: &mut Report) -> Result<()> {
    let mut samples = vec![Samples::default(); variants.len()];
    for variant in &mut variants {
        // Statements are prepared, and their plans are made.
        (variant.run)(WARM_UP)?;
    }
    for round in 0..plan.rounds {
        for place in order(variants.len(), round) {
            samples[place].push((variants[place].run)(plan.round)?);
        }
    }
    let blocking_lock = samples[1].median();
    for (variant, samples_of_it) in variants.iter().zip(&samples) {
        let median = samples_of_it.median();
        let bare = variants.iter().position(|other| other.name == variant.bare);
        let added = bare.map(|bare| median - samples[bare].median());
        let ratio = median / blocking_lock;
        report.row(&json!([variant.name, median, added, ratio]));
    }
    Ok(())
}

/// What an application would write without this crate.
fn by_hand<'a>(runtime: &'a Runtime, url: &'a str) -> Result<Vec<Variant<'a>>> {
    use sqlx::Connection as _;

    const ACQUIRE: &str = "SELECT pg_advisory_xact_lock(4711)";
    const READ: &str = "SELECT price FROM bonds WHERE id = 1";
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
