//! Starts an instance, serves until it is asked to end, and ends within a time limit.

use std::future::IntoFuture;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
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
use crate::metrics::Metrics;
use crate::state::{Snapshot, publisher};
use crate::store::{Pools, Store};
use crate::{name, routes};

/// Threads that may block, besides those of requests: health checks and releases.
const MORE_THREADS: usize = 64;

/// Serves until SIGTERM or SIGINT. Returns the exit code.
pub(crate) fn serve<C: Store>(database: &Database, arguments: &Arguments) -> Result<i32> {
    let name = arguments.name.clone().map_or_else(name::default, Ok)?;
    let pools = Pools::<C>::open(database, arguments)?;
    let engine = pools.operator.get()?.engine()?;
    let metrics = Metrics::new()?;
    metrics.install()?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(arguments.max_waiting as usize + MORE_THREADS)
        .build()?;
    let ended = runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .with_context(|| format!("can't listen on {}", arguments.listen))?;
        let address = listener.local_addr()?.to_string();
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::new(0, None, "{}".to_owned())));
        let app = App::new(pools, metrics, snapshots, name, arguments);
        let app = Arc::new(app);
        let publisher = Arc::clone(&app);
        let shown = engine.clone();
        thread::spawn(move || publisher::run(&publisher, &shown, &sender));
        // The first snapshot: the page begins with it.
        app.snapshots.clone().changed().await?;
        terminal::print(format!("web: {engine}; listening on http://{address}"));
        if app.arguments.operator_token.is_none() {
            terminal::print_to_stderr(
                "web: without --operator-token everyone who reaches the page can release slots",
            );
        }
        let router = routes::router(Arc::clone(&app));
        serve_until_asked_to_end(&app, listener, router, arguments.shutdown()).await
    });
    // Threads that still wait for the database are left behind.
    runtime.shutdown_background();
    Ok(i32::from(!ended?))
}

/// Serves until SIGTERM or SIGINT, and then ends within `limit`: accepts no more requests, ends all waits, lets closures
/// and jobs end, and releases all slots. Returns whether all had ended in time.
async fn serve_until_asked_to_end<C: Store>(
    app: &Arc<App<C>>,
    listener: TcpListener,
    router: Router,
    limit: Duration,
) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop_accepting, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        // It never fails while this function runs.
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    let asked =
        futures_util::future::select(Box::pin(terminate.recv()), Box::pin(interrupt.recv()));
    asked.await;
    let deadline = Instant::now() + limit;
    let _ = stop_accepting.send(());
    // Before a thread is free for the rest.
    app.shutdown.stop_token().stop();
    // Ends all waits, waits for transactions and jobs, and releases what is still held at the time limit. The streams of
    // events end with the token.
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
    if let Ok(Ok(left)) = &left
        && !left.is_empty()
    {
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

/// How long the last answers may take when all is done.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the release of the slots that are left may take: the time-out of the renewer's pool, and a statement.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
