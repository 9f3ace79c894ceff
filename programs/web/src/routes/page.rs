//! The operator's page.

use axum::http::header;
use axum::response::{Html, IntoResponse};

pub(super) async fn index() -> impl IntoResponse {
    Html(include_str!("../../page/index.html"))
}

pub(super) async fn style() -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (kind, include_str!("../../page/style.css"))
}

pub(super) async fn script() -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, include_str!("../../page/page.js"))
}
