//! The routes, and what all answers have in common.

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};

use crate::app::App;
use crate::problem::{self, MayBeDone, Problem};
use crate::store::Store;

mod accounts;
mod admin;
mod documents;
mod guard;
mod jobs;
mod passes;
mod status;

/// No foreign hosts, and no scripts or styles inside of the page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The largest text of an error that becomes a problem's.
const MAX_DETAIL: usize = 4096;

pub(crate) fn router<C: Store>(app: Arc<App<C>>) -> Router {
    let guarded = Router::new()
        .route("/", get(status::index))
        .route("/page/{file}", get(status::page_file))
        .route(
            "/documents/{id}",
            put(documents::put::<C>).get(documents::get::<C>),
        )
        .route("/accounts", get(accounts::list::<C>))
        .route("/transfers", post(accounts::transfer::<C>))
        .route("/meetings/{id}/passes", post(passes::issue::<C>))
        .route("/jobs/{name}", post(jobs::start::<C>))
        .route("/events", get(status::events::<C>))
        .route("/api/state", get(status::state::<C>))
        .route(
            "/admin/semaphores/{name}/release",
            post(admin::release::<C>),
        )
        .route(
            "/admin/semaphores/{name}/slots/{number}/release",
            post(admin::release_slot::<C>),
        )
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            guard::check::<C>,
        ));
    Router::new()
        .route("/health", get(status::health::<C>))
        .route("/metrics", get(status::metrics::<C>))
        .merge(guarded)
        .layer(DefaultBodyLimit::max(app.arguments.max_body))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            finish::<C>,
        ))
        .with_state(app)
}

/// Makes a problem of every error, also of those of axum, and sets the headers of security.
async fn finish<C: Store>(
    State(app): State<Arc<App<C>>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let is_idempotent = request.method().is_idempotent();
    let response = next.run(request).await;
    let mut response = with_problem(&app, &path, response).await;
    let may_be_done = response.extensions_mut().remove::<MayBeDone>().is_some();
    let headers = response.headers_mut();
    if may_be_done && !is_idempotent {
        // A client would repeat a transfer.
        headers.remove(header::RETRY_AFTER);
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn with_problem<C: Store>(app: &App<C>, path: &str, response: Response) -> Response {
    let status = response.status();
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == problem::MEDIA_TYPE);
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_DETAIL).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let detail = match status {
        StatusCode::NOT_FOUND => format!("there is nothing at {path}"),
        StatusCode::METHOD_NOT_ALLOWED => format!("{path} does not accept this method"),
        StatusCode::PAYLOAD_TOO_LARGE => {
            format!("the body is larger than {} bytes", app.arguments.max_body)
        }
        _ => text.into_owned(),
    };
    let mut answer = Problem::new(status, detail).into_response();
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        // Only bodies of JSON have to say what they are.
        let supported = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(header::ACCEPT, supported);
    }
    answer
}
