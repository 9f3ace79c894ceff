//! Errors as JSON problems (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel_locks::Error;
use serde_json::json;
use tokio::task::JoinError;

/// An answer with a status of 400 to 599, and what the page shows of it.
pub(crate) struct Problem(pub(crate) StatusCode, pub(crate) String);

impl Problem {
    /// Of work in the background.
    pub(crate) fn panicked(_: JoinError) -> Self {
        let detail = "an error of the program that serves this page";
        Self(StatusCode::INTERNAL_SERVER_ERROR, detail.to_owned())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::InvalidName(_) => StatusCode::BAD_REQUEST,
            _ if error.is_insufficient_privilege() => StatusCode::FORBIDDEN,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, detail) = self;
        let title = status.canonical_reason().unwrap_or("Error");
        let problem = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, Json(problem)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
