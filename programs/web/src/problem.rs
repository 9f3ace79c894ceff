//! Errors as JSON problems (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel::result::Error as DieselError;
use diesel_locks::Error;
use serde_json::json;

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// An answer with a status of 400 to 599.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    /// Whether the client may repeat the request: nothing was done.
    is_temporary: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            is_temporary: false,
        }
    }

    /// With the header `Retry-After`.
    pub(crate) fn temporary(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            is_temporary: true,
            ..Self::new(status, detail)
        }
    }

    pub(crate) fn shutting_down() -> Self {
        let detail = "the service is shutting down";
        Self::temporary(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The client has hung up, or the process is to end.
    pub(crate) fn stopped() -> Self {
        let detail = "stopped before anything was done";
        Self::temporary(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The client gets no names of tables and servers.
    pub(crate) fn internal() -> Self {
        let detail = "an error of the service; its log has the cause";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = match &error {
            Error::LockTimeout { .. } | Error::Unavailable { .. } => {
                return Self::temporary(StatusCode::CONFLICT, error.to_string());
            }
            Error::InvalidName(_) | Error::InvalidWait { .. } | Error::InvalidLease { .. } => {
                return Self::new(StatusCode::BAD_REQUEST, error.to_string());
            }
            Error::Stopped { .. } => return Self::shutting_down(),
            Error::Pool(_) => {
                let detail = "no connection to the database is free, or it does not answer";
                return Self::temporary(StatusCode::SERVICE_UNAVAILABLE, detail);
            }
            // A COMMIT may have been done.
            Error::OutcomeUnknown { .. } => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the outcome is unknown: check before you repeat",
            ),
            _ if error.is_retryable() || error.is_timeout() => {
                return Self::temporary(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
            }
            _ if error.is_connection_lost() => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the connection to the database was lost: check what was done before you repeat",
            ),
            _ => Self::internal(),
        };
        crate::log(&format!("{:#}", anyhow::Error::new(error)));
        problem
    }
}

impl From<DieselError> for Problem {
    fn from(error: DieselError) -> Self {
        Error::from(error).into()
    }
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
        let headers = response.headers_mut();
        if self.is_temporary {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use diesel::result::{DatabaseErrorKind, Error as DieselError};
    use diesel_locks::Error;

    use super::Problem;

    #[test]
    fn what_may_have_been_done_is_not_to_be_repeated() {
        let lost = || {
            let text = "server closed the connection unexpectedly".to_owned();
            DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(text))
        };
        let unknown = Error::OutcomeUnknown { source: lost() };
        for (problem, status) in [
            (Problem::from(unknown), StatusCode::INTERNAL_SERVER_ERROR),
            (Problem::from(lost()), StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let answer = problem.into_response();
            assert_eq!(answer.status(), status);
            assert!(!answer.headers().contains_key("retry-after"));
        }
    }
}
