//! The operator's page: its files are part of the program.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

pub(super) async fn index() -> impl IntoResponse {
    Html(include_str!("../../page/index.html"))
}

/// A file that the page loads.
pub(super) async fn file(Path(name): Path<String>) -> Response {
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
