//! What people and programs look at: the page with its events, health checks, and figures for Prometheus.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};
use tokio::{task, time};

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The operator's page: its files are part of the program.
pub(super) async fn index() -> impl IntoResponse {
    Html(include_str!("../../page/index.html"))
}

/// A file that the page loads.
pub(super) async fn page_file(Path(name): Path<String>) -> Response {
    let (kind, text) = match name.as_str() {
        "elements.js" => (SCRIPT, include_str!("../../page/elements.js")),
        "favicon.svg" => ("image/svg+xml", include_str!("../../page/favicon.svg")),
        "format.js" => (SCRIPT, include_str!("../../page/format.js")),
        "holders.js" => (SCRIPT, include_str!("../../page/holders.js")),
        "lane.js" => (SCRIPT, include_str!("../../page/lane.js")),
        "lists.js" => (SCRIPT, include_str!("../../page/lists.js")),
        "page.js" => (SCRIPT, include_str!("../../page/page.js")),
        "release.js" => (SCRIPT, include_str!("../../page/release.js")),
        "semaphores.js" => (SCRIPT, include_str!("../../page/semaphores.js")),
        "style.css" => (STYLE, include_str!("../../page/style.css")),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// A snapshot is sent again, with the present time, if there is no new one for so long.
const LONGEST_PAUSE: Duration = Duration::from_millis(450);

/// The state of all semaphores, locks and sequences.
pub(super) async fn state<C: Store>(State(app): State<Arc<App<C>>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let snapshot = app.snapshots.borrow().json();
    (kind, snapshot)
}

/// Each event is a whole snapshot. The snapshots are made once for all listeners. The stream ends when the process is
/// to end.
pub(super) async fn events<C: Store>(
    State(app): State<Arc<App<C>>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let snapshots = app.snapshots.clone();
    let stop = app.shutdown.stop_token().clone();
    Sse::new(stream::unfold(
        (snapshots, stop, true),
        |(mut snapshots, stop, first)| async move {
            if !first {
                let changed = time::timeout(LONGEST_PAUSE, snapshots.changed()).await;
                // The publisher may still wait for the database.
                if matches!(changed, Ok(Err(_))) || stop.is_stopped() {
                    return None;
                }
            }
            let event = Event::default().data(snapshots.borrow_and_update().json());
            Some((Ok(event), (snapshots, stop, false)))
        },
    ))
}

/// After this time the database counts as down.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the database on a connection that requests can't occupy. One check at a time asks.
pub(super) async fn health<C: Store>(
    State(app): State<Arc<App<C>>>,
) -> Result<Json<Value>, Problem> {
    let asked = async {
        let turn = Arc::clone(&app.health_turn).lock_owned().await;
        let app = Arc::clone(&app);
        let asked = task::spawn_blocking(move || {
            let _turn = turn;
            app.health.ask(HEALTH_TIMEOUT, |conn| Ok(conn.now_us()?))
        });
        asked.await
    };
    match time::timeout(HEALTH_TIMEOUT, asked).await {
        Ok(Ok(Ok(_))) => Ok(Json(json!({ "status": "ok" }))),
        _ => Err(Problem::database_down()),
    }
}

/// Figures for Prometheus.
pub(super) async fn metrics<C: Store>(State(app): State<Arc<App<C>>>) -> impl IntoResponse {
    app.metrics.set_now(
        app.locks.waiting(),
        app.jobs.running(),
        app.running_releases(),
    );
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, app.metrics.text())
}
