//! Figures for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use crate::app::App;
use crate::store::Store;

pub(super) async fn text<C: Store>(State(app): State<Arc<App<C>>>) -> impl IntoResponse {
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
