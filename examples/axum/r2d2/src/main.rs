//! A web service with object locks and a leader, on axum and r2d2's pool.
//!
//! `DATABASE_URL=postgres://localhost/app cargo run -p axum-r2d2`, on any number of servers.

use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, Shutdown, SlotRenewer, StopToken};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use tokio::signal::{ctrl_c, unix};
use tokio::task::spawn_blocking;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();
/// One server at a time counts the stock.
static COUNTER: Semaphore = Semaphore::from_static("counter", 1);
/// How long a request waits for a lock, on a thread: shorter than the client's time-out.
const WAIT: Wait = Wait::AtMost(Duration::from_secs(2));

diesel::table! { stock (item) { item -> BigInt, pieces -> BigInt } }

type PgPool = Pool<ConnectionManager<PgConnection>>;
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

/// Takes pieces of an item, as many as there are. One transaction at a time, of all servers, does this for an item.
async fn take(
    State((locks, stop)): State<(Locks, StopToken)>,
    Path((item, pieces)): Path<(i64, u32)>,
) -> Result<String, AppError> {
    // When the client hangs up, axum drops this future, and the wait ends. A closure that runs is not interrupted.
    let client = stop.child();
    let _hang_up = client.stop_on_drop();
    let locks = locks.stopped_by(&client);
    let request = LockRequest::new(ObjectId::new("Item", item)).wait(WAIT);
    let work = move || {
        locks.with_object_lock(request, |conn| -> Result<i64, Error> {
            let item = stock::table.find(item);
            let left: i64 = item.select(stock::pieces).first(conn)?;
            let taken = left.min(pieces.into());
            let change = diesel::update(item).set(stock::pieces.eq(left - taken));
            change.execute(conn)?;
            Ok(taken)
        })
    };
    let done = spawn_blocking(work).await;
    Ok(done.expect("the work does not panic")?.to_string())
}

/// What waits for locks in this process, and what holds them.
async fn requests(State((locks, _)): State<(Locks, StopToken)>) -> String {
    let requests = locks.requests().into_iter();
    requests.map(|it| it.to_string() + "\n").collect()
}

/// Counts once a second while this server leads, until the shutdown. Blocks its thread.
fn lead(renewer: &SlotRenewer<PgPool>, locks: &Locks) {
    let lease = LeaseOptions::new(Duration::from_secs(30));
    let led = renewer.run_as_leader(&COUNTER, lease, |leader| {
        while leader.sleep(Duration::from_secs(1)) {
            let done = locks.run_transaction(TransactionOptions::new(), |conn| {
                conn.pin_slot(leader.slot())?; // an error if another server leads by now
                let count = "INSERT INTO counts SELECT now(), sum(pieces) FROM stock";
                diesel::sql_query(count).execute(conn)?;
                Ok(())
            });
            done.unwrap_or_else(log);
        }
        Ok(())
    });
    led.unwrap_or_else(log);
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("DATABASE_URL").context("DATABASE_URL")?;
    let database = || ConnectionManager::<PgConnection>::new(&url);
    let pool = Pool::builder().max_size(8).build(database())?;
    // Of their own, so that requests can't delay a renewal.
    let renewals = Pool::builder().max_size(2).build(database())?;
    diesel_locks::run_migrations(&mut pool.get()?, MIGRATIONS)?;

    let shutdown = Shutdown::new();
    let stop = shutdown.stop_token().clone();
    let locks = shutdown.add_lock_pool(&LockPool::new(pool)); // clones share their queues
    let renewer = shutdown.add_renewer(&SlotRenewer::new(renewals));
    let router = Router::new()
        .route("/stock/{item}/take/{pieces}", post(take))
        .route("/requests", get(requests))
        .with_state((locks.clone(), stop.clone()));
    thread::spawn(move || lead(&renewer, &locks));
    let address = env::var("LISTEN").unwrap_or("0.0.0.0:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

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
    let left = spawn_blocking(move || shutdown.shut_down(Duration::from_secs(8))).await?;
    let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
    if !left.is_empty() {
        eprintln!("cut off: {left:?}");
    }
    // Waits for no thread, and runs no exit handlers, which can crash a thread of r2d2 that opens a connection.
    signal_hook::low_level::exit(i32::from(!left.is_empty()))
}
