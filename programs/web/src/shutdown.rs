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

/// How often the end of jobs is looked for.
const STEP: Duration = Duration::from_millis(10);

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
    // Waits end, jobs end after their step, and so do the streams of events.
    app.shutdown.stop();
    let ended = time::timeout_at(deadline, async {
        let _ = server.await;
        app.closures_ended().await;
        while app.jobs.running() > 0 {
            time::sleep(STEP).await;
        }
    });
    let in_time = ended.await.is_ok();
    if !in_time {
        eprintln!(
            "web: requests or jobs have not ended within {} s",
            limit.as_secs()
        );
    }
    // Other instances need not wait until the leases end.
    let renewer = app.renewer.clone();
    let released = task::spawn_blocking(move || renewer.release_all());
    let _ = time::timeout(RELEASE_TIMEOUT, released).await;
    Ok(in_time)
}

/// How long the release of all slots may take: the time-out of the renewer's pool, and a statement.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
