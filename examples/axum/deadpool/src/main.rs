//! A web service with object locks and a leader, on axum and diesel-async's pool of deadpool.
//!
//! `DATABASE_URL=postgres://localhost/app cargo run -p axum-deadpool`, on any number of servers.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use deadpool::Runtime;
use diesel::prelude::*;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use diesel_locks::prelude::*;
use diesel_locks::{ActiveSlot, Async, Error, LockPool, Shutdown, SlotRenewer};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use tokio::signal::{ctrl_c, unix};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();
/// One server at a time counts the stock.
static COUNTER: Semaphore = Semaphore::from_static("counter", 1);
/// How long a request waits for a lock: shorter than the client's time-out.
const WAIT: Wait = Wait::AtMost(Duration::from_secs(2));

diesel::table! { stock (item) { item -> BigInt, pieces -> BigInt } }

type PgPool = Pool<AsyncPgConnection>;
type Locks = LockPool<PgPool>;

struct AppError(Error);

/// From the errors of diesel-locks, of Diesel and of the pool.
impl<E: Into<Error>> From<E> for AppError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        if matches!(self.0, Error::Database(diesel::NotFound)) {
            return StatusCode::NOT_FOUND.into_response();
        }
        // Busy or timed out, stopped, or the victim of a deadlock: nothing was done.
        let again = self.0.is_busy() || self.0.is_retryable();
        log(self.0);
        if again {
            let later = [(header::RETRY_AFTER, "1")];
            return (StatusCode::SERVICE_UNAVAILABLE, later).into_response();
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

fn log(error: Error) {
    eprintln!("{:#}", anyhow::Error::new(error)); // with its sources, such as the database's message
}

/// Takes pieces of an item, as many as there are. One transaction at a time, of all servers, does this for an item. When the
/// client hangs up, axum drops the future: the wait ends, and a transaction is rolled back, unless COMMIT was sent.
async fn take(
    State(locks): State<Locks>,
    Path((item, pieces)): Path<(i64, u32)>,
) -> Result<String, AppError> {
    let request = LockRequest::new(ObjectId::new("Item", item)).wait(WAIT);
    let taken = locks.with_object_lock(request, async |conn| -> Result<i64, Error> {
        let item = stock::table.find(item);
        let left: i64 = item.select(stock::pieces).first(conn).await?;
        let taken = left.min(pieces.into());
        let change = diesel::update(item).set(stock::pieces.eq(left - taken));
        change.execute(conn).await?;
        Ok(taken)
    });
    Ok(taken.await?.to_string())
}

/// What waits for locks in this process, and what holds them.
async fn requests(State(locks): State<Locks>) -> String {
    let requests = locks.requests().into_iter();
    requests.map(|it| it.to_string() + "\n").collect()
}

/// Counts once a second while this server leads, until the shutdown.
async fn lead(renewer: SlotRenewer<PgPool>, locks: Locks) {
    let lease = LeaseOptions::new(Duration::from_secs(30));
    let led = renewer.run_as_leader(&COUNTER, lease, async |leader: &ActiveSlot<Async>| {
        while leader.sleep(Duration::from_secs(1)).await {
            let done = locks.run_transaction(TransactionOptions::new(), async |conn| {
                conn.pin_slot(leader.slot()).await?; // an error if another server leads by now
                let count = "INSERT INTO counts SELECT now(), sum(pieces) FROM stock";
                diesel::sql_query(count).execute(conn).await?;
                Ok::<_, Error>(())
            });
            done.await.unwrap_or_else(log);
        }
        Ok::<_, Error>(())
    });
    led.await.unwrap_or_else(log);
}

/// With time-outs: without them `pool.get()` waits without limit.
fn open_pool(url: &str, connections: usize) -> Result<PgPool> {
    let limit = Some(Duration::from_secs(5));
    let pool = Pool::builder(AsyncDieselConnectionManager::new(url)).max_size(connections);
    let pool = pool.wait_timeout(limit).create_timeout(limit);
    let pool = pool.recycle_timeout(limit).runtime(Runtime::Tokio1);
    Ok(pool.build()?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("DATABASE_URL").context("DATABASE_URL")?;
    let pool = open_pool(&url, 8)?;
    // Of their own, so that requests can't delay a renewal.
    let renewals = open_pool(&url, 2)?;
    diesel_locks::run_migrations_async(&mut pool.get().await?, MIGRATIONS).await?;

    let shutdown = Shutdown::<Async>::new();
    let locks = shutdown.add_lock_pool(&LockPool::new(pool)); // clones share their queues
    let renewer = shutdown.add_renewer(&SlotRenewer::new(renewals));
    tokio::spawn(lead(renewer, locks.clone()));
    let router = Router::new()
        .route("/stock/{item}/take/{pieces}", post(take))
        .route("/requests", get(requests))
        .with_state(locks);
    let address = env::var("LISTEN").unwrap_or("0.0.0.0:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let stop = shutdown.stop_token().clone();
    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    let end = async move {
        tokio::select! { _ = terminate.recv() => (), _ = ctrl_c() => () }
        stop.stop(); // requests that wait are answered 503, and the leader ends
    };
    // A task, because axum waits for its clients without limit.
    let server = axum::serve(listener, router).with_graceful_shutdown(end);
    let server = tokio::spawn(server.into_future());
    shutdown.stop_token().stopped().await;
    // Releases all leases. Both limits together are less than the 10 s of Docker.
    let left = shutdown.shut_down(Duration::from_secs(8)).await;
    let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
    ensure!(left.is_empty(), "cut off: {left:?}");
    Ok(())
}
