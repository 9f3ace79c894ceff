//! The routes, and what all answers have in common.

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post, put};
use diesel_locks_page::Page;

use crate::app::App;
use crate::problem::{self, Problem};

mod accounts;
mod documents;
mod jobs;
mod passes;
mod status;

/// Of all answers but the page, which has its own.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// The largest text of an error that becomes a problem's.
const MAX_DETAIL: usize = 4096;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(async || Redirect::temporary("locks")))
        .route("/documents/{id}", put(documents::put).get(documents::get))
        .route("/accounts", get(accounts::list))
        .route("/transfers", post(accounts::transfer))
        .route("/meetings/{id}/passes", post(passes::issue))
        .route("/jobs/{name}", post(jobs::start))
        .route("/health", get(status::health))
        .route("/metrics", get(status::metrics))
        .nest("/locks", page(&app))
        .layer(DefaultBodyLimit::max(app.arguments.max_body))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), finish))
        .with_state(app)
}

/// The page of locks, with the requests and the metrics of this instance.
fn page(app: &Arc<App>) -> Router<Arc<App>> {
    let requests = Arc::clone(app);
    let page = Page::new(app.operator.clone()).name(&app.instance);
    let page = page.requests(move || {
        let mut all = requests.locks.requests();
        all.extend(requests.renewer.requests());
        all
    });
    let metrics = app.metrics.clone();
    let page = page.metrics(move || metrics.render());
    diesel_locks_page::router(match &app.arguments.operator_token {
        Some(token) => page.token(token),
        None => page,
    })
}

/// Makes a problem of every error, also of those of axum, and sets the headers of security.
async fn finish(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = if is_of_another_site(&request) {
        Problem::new(
            StatusCode::FORBIDDEN,
            "a page of another site has sent this",
        )
        .into_response()
    } else {
        next.run(request).await
    };
    let mut response = with_problem(&app, &path, response).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whether a page of another site has a browser send something that changes anything.
fn is_of_another_site(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site");
    let is_own = site.is_none_or(|site| site == "same-origin" || site == "none");
    !is_own && !request.method().is_safe()
}

async fn with_problem(app: &App, path: &str, response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_problem = kind.is_some_and(|kind| kind == problem::MEDIA_TYPE);
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let detail = match status {
        StatusCode::NOT_FOUND => format!("there is nothing at {path}"),
        StatusCode::METHOD_NOT_ALLOWED => format!("{path} does not accept this method"),
        StatusCode::PAYLOAD_TOO_LARGE => {
            format!("the body is larger than {} bytes", app.arguments.max_body)
        }
        _ => {
            let text = to_bytes(body, MAX_DETAIL).await.unwrap_or_default();
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    let mut answer = Problem::new(status, detail).into_response();
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    answer
}
