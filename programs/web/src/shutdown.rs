//! The end of an instance, within a time limit.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task;
use tokio::time::{self, Instant};

use crate::app::App;
use crate::store::Store;

/// Serves until SIGTERM or SIGINT, and then ends within `limit`: accepts no more requests, ends all waits, lets closures
/// and jobs end, and releases all slots. Returns whether all had ended in time.
pub(crate) async fn serve<C: Store>(
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
