//! The routes. A handler takes what it needs from an extractor, and has no lock or connection while it waits.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Path};
use axum::http::request::Parts;
use axum::routing::{get, put};
use program_support::terminal;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::app_error::AppError;
use crate::store::Store;

/// What a request does while it holds the lock or the slot.
const WORK: Duration = Duration::from_millis(2);

/// How long closures may take to end after SIGTERM.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// How long the last answers may take when all closures have ended.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The store as an extractor: a handler names it among its arguments.
struct Documents(Arc<dyn Store>);

impl<S> FromRequestParts<S> for Documents
where
    Arc<dyn Store>: FromRef<S>,
    S: Sync,
{
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Infallible> {
        Ok(Self(Arc::from_ref(state)))
    }
}

/// The service, without an address.
pub(crate) fn router(store: Arc<dyn Store>) -> Router {
    Router::new()
        .route("/documents/{id}", put(revise))
        .route("/report", get(report))
        .route("/health", get(health))
        .with_state(store)
}

/// Dropped by axum when the client hangs up: the transaction is rolled back then, wherever it is.
async fn revise(Path(id): Path<String>, Documents(store): Documents) -> Result<String, AppError> {
    Ok(store.revise(&id, WORK).await?.to_string())
}

async fn report(Documents(store): Documents) -> Result<String, AppError> {
    Ok(store.report(WORK).await?.to_string())
}

/// Answers how many requests wait.
async fn health(Documents(store): Documents) -> Result<String, AppError> {
    store.check_health().await?;
    Ok(store.waiting().to_string())
}

/// Runs the service until SIGINT or SIGTERM. Then it accepts no more requests, ends all waits, and lets closures end.
pub(crate) async fn serve(store: Arc<dyn Store>, address: SocketAddr) -> Result<ExitCode> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("can't listen on {address}"))?;
    let address = listener.local_addr()?;
    terminal::print(format!("{} on http://{address}", store.engine()));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = store.shutdown().clone();
    let waits = shutdown.stop_token().clone();
    let end = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // The server waits for its handlers: those that wait for a lock or a slot answer 503 at once.
        waits.stop();
    };
    let server = axum::serve(listener, router(store)).with_graceful_shutdown(end);
    let server = tokio::spawn(server.into_future());
    shutdown.stop_token().stopped().await;
    let left = shutdown.shut_down(SHUTDOWN).await;
    // A client that does not read its answer is not waited for.
    let _ = timeout(ANSWER_TIMEOUT, server).await;
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("cut off: {left:?}");
    Ok(ExitCode::FAILURE)
}
