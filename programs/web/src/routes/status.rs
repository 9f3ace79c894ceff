//! What programs look at: health checks, and figures for Prometheus.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;

/// Whether the last look at the database, at most a few seconds ago, was answered.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    match *app.health.borrow() {
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
