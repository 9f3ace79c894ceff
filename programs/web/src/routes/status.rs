//! What people and programs look at: the page with its events, health checks, and figures for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse};
use axum::{Error, Json};
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;

/// A text that the page loads, with its type.
type Asset = ([(HeaderName, &'static str); 1], &'static str);

/// The operator's page: its files are part of the program.
pub(super) async fn index() -> Html<&'static str> {
    Html(include_str!("../../page/index.html"))
}

pub(super) async fn script() -> Asset {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, include_str!("../../page/page.js"))
}

pub(super) async fn style() -> Asset {
    let kind = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (kind, include_str!("../../page/style.css"))
}

/// The state of all semaphores, object locks and sequences.
pub(super) async fn state(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(&*app.snapshots.borrow()))
}

/// Each event is a whole snapshot. The snapshots are made once for all listeners.
pub(super) async fn events(
    State(app): State<Arc<App>>,
) -> Sse<impl Stream<Item = Result<Event, Error>>> {
    let mut snapshots = app.snapshots.clone();
    // The first event has the newest one.
    snapshots.mark_changed();
    Sse::new(stream::unfold(snapshots, |mut snapshots| async move {
        // Nobody makes snapshots any more when the process is to end.
        snapshots.changed().await.ok()?;
        let event = Event::default().json_data(&*snapshots.borrow_and_update());
        Some((event, snapshots))
    }))
}

/// Whether the last look at the database, at most a few seconds ago, was answered.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    match app.snapshots.borrow().error {
        None => Ok(Json(json!({ "status": "ok" }))),
        Some(error) => Err(Problem::temporary(StatusCode::SERVICE_UNAVAILABLE, error)),
    }
}

/// Figures for Prometheus.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, app.metrics.render())
}
