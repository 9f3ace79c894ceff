//! Errors as JSON problems (RFC 9457).

use std::error::Error as StdError;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel::result::Error as DieselError;
use diesel_locks::Error;
use serde_json::json;

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// After how many seconds a client may try again.
const RETRY_AFTER: u32 = 1;

/// An answer with a status of 400 to 599.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    retry: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry: false,
        }
    }

    /// With the header `Retry-After`.
    pub(crate) fn temporary(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            retry: true,
            ..Self::new(status, detail)
        }
    }

    /// The database does not answer.
    pub(crate) fn database_down() -> Self {
        Self::temporary(
            StatusCode::SERVICE_UNAVAILABLE,
            "the database does not answer",
        )
    }

    fn internal(error: &dyn StdError) -> Self {
        // The client gets no names of tables and servers.
        eprintln!("web: {}", with_causes(error));
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "an error of the service; its log has the cause",
        )
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match &error {
            Error::LockTimeout { .. } | Error::Unavailable { .. } => {
                Self::temporary(StatusCode::CONFLICT, error.to_string())
            }
            Error::InvalidObjectId(_)
            | Error::InvalidName(_)
            | Error::InvalidWait { .. }
            | Error::InvalidLease { .. } => Self::new(StatusCode::BAD_REQUEST, error.to_string()),
            Error::Stopped { .. } => Self::temporary(
                StatusCode::SERVICE_UNAVAILABLE,
                "the service is shutting down",
            ),
            Error::Pool(_) => Self::temporary(
                StatusCode::SERVICE_UNAVAILABLE,
                "no connection to the database is free, or it does not answer",
            ),
            _ if error.is_retryable() || error.is_timeout() => {
                Self::temporary(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            _ if is_connection_lost(&error) => Self::database_down(),
            _ => Self::internal(&error),
        }
    }
}

impl From<DieselError> for Problem {
    fn from(error: DieselError) -> Self {
        Error::from(error).into()
    }
}

/// Whether the connection has ended, by the texts of libpq, libmariadb and libmysqlclient: Diesel has a kind for few of
/// them.
fn is_connection_lost(error: &Error) -> bool {
    let text = with_causes(error).to_lowercase();
    [
        "connection",
        "gone away",
        "shutdown",
        "shutting down",
        "starting up",
        "broken",
    ]
    .iter()
    .any(|word| text.contains(word))
}

fn with_causes(error: &dyn StdError) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Json(json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        }));
        let mut response =
            (self.status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        if self.retry {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER.into());
        }
        response
    }
}
