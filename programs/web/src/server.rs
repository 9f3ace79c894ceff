//! Starts an instance, serves until it is asked to end, and ends within a time limit.

use std::env::{self, VarError};
use std::future::IntoFuture;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use futures_util::future::select;
use metrics_exporter_prometheus::PrometheusBuilder;
use program_support::database::Database;
use program_support::terminal;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task;
use tokio::time::{self, Instant};

use crate::app::App;
use crate::args::Arguments;
use crate::{health, routes, store, warnings};

/// Buckets of waits and holds, in seconds.
const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// How often the values of histograms are put into their buckets, also if nobody reads them.
const UPKEEP: Duration = Duration::from_secs(5);

/// Threads that may block, besides those of requests: releases.
const MORE_THREADS: usize = 64;

/// How long the last answers may take when all is done.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the release of the slots that are left may take: the time-out of the renewer's pool, and a statement.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT. Returns the exit code.
pub(crate) fn serve(database: &Database, mut arguments: Arguments) -> Result<i32> {
    if arguments.operator_token.is_none() {
        arguments.operator_token = match env::var("OPERATOR_TOKEN") {
            Ok(token) => Some(token).filter(|token| !token.is_empty()),
            Err(VarError::NotPresent) => None,
            Err(error) => return Err(error).context("OPERATOR_TOKEN"),
        };
    }
    let instance = arguments.name.clone().unwrap_or_else(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        format!("{host}-{}", std::process::id())
    });
    store::set_up(database)?;
    warnings::install()?;
    let metrics = PrometheusBuilder::new().set_buckets(&BUCKETS)?;
    let metrics = metrics.install_recorder()?;
    diesel_locks::describe_metrics();
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(arguments.max_waiting as usize + MORE_THREADS)
        .build()?;
    let ended = runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .with_context(|| format!("can't listen on {}", arguments.listen))?;
        let address = listener.local_addr()?;
        let (sender, health) = watch::channel(None);
        let upkeep = metrics.clone();
        tokio::spawn(async move {
            loop {
                time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        });
        let app = App::new(database, arguments, instance, metrics, health)?;
        let (database, stop) = (database.clone(), app.shutdown.stop_token().clone());
        thread::spawn(move || health::watch(&database, &stop, &sender));
        // Health checks begin with the first answer.
        app.health.clone().changed().await?;
        terminal::print(format!("web: listening on http://{address}"));
        let app = Arc::new(app);
        serve_until_asked_to_end(&app, listener, routes::router(Arc::clone(&app))).await
    });
    // Threads that still wait for the database are left behind.
    runtime.shutdown_background();
    Ok(i32::from(!ended?))
}

/// Serves until SIGTERM or SIGINT, and then ends within the limit: accepts no more requests, ends all waits, lets closures
/// and jobs end, and releases all slots. Returns whether all had ended in time.
async fn serve_until_asked_to_end(
    app: &App,
    listener: TcpListener,
    router: Router,
) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop_accepting, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        // It never fails while this function runs.
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    select(Box::pin(terminate.recv()), Box::pin(interrupt.recv())).await;
    let limit = app.arguments.shutdown;
    let deadline = Instant::now() + limit;
    let _ = stop_accepting.send(());
    // Before a thread is free for the rest.
    app.shutdown.stop_token().stop();
    // Ends all waits, waits for transactions and jobs, and releases what is still held at the time limit.
    let shutdown = app.shutdown.clone();
    let ended = task::spawn_blocking(move || shutdown.shut_down(limit));
    let requests_ended = time::timeout_at(deadline, app.closures_ended())
        .await
        .is_ok();
    if !requests_ended {
        eprintln!("web: requests have not ended within {} s", limit.as_secs());
    }
    let left = time::timeout_at(deadline + RELEASE_TIMEOUT, ended).await;
    let all_ended = matches!(&left, Ok(Ok(left)) if left.is_empty());
    if let (Ok(Ok(left)), false) = (&left, all_ended) {
        eprintln!(
            "web: not ended in time: {} transactions, {} jobs or calls; {} slots were released",
            left.transactions,
            left.guards,
            left.slots.len()
        );
    }
    // A client that does not read its answer is not waited for.
    let _ = time::timeout(ANSWER_TIMEOUT, server).await;
    Ok(requests_ended && all_ended)
}
