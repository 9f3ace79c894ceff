//! Errors as JSON problems (RFC 9457).

use std::error::Error as StdError;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel::result::Error as DieselError;
use diesel_locks::Error;
use serde_json::json;

use crate::log::{self, with_causes};

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// After how many seconds a client may try again.
const RETRY_AFTER: u32 = 1;

/// An answer with a status of 400 to 599.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    retry: Retry,
}

/// Whether the answer has the header `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    Never,
    Always,
    /// Only if the method of the request is idempotent: the request may have been done.
    Idempotent,
}

/// Marks an answer whose `Retry-After` is wrong for a method that is not idempotent.
#[derive(Clone)]
pub(crate) struct MayBeDone;

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry: Retry::Never,
        }
    }

    /// With the header `Retry-After`.
    pub(crate) fn temporary(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            retry: Retry::Always,
            ..Self::new(status, detail)
        }
    }

    pub(crate) fn shutting_down() -> Self {
        Self::temporary(
            StatusCode::SERVICE_UNAVAILABLE,
            "the service is shutting down",
        )
    }

    /// The database does not answer, and nothing was done.
    pub(crate) fn database_down() -> Self {
        Self::temporary(
            StatusCode::SERVICE_UNAVAILABLE,
            "the database does not answer",
        )
    }

    /// The connection was lost while it was used. A COMMIT may have been done.
    fn connection_lost(error: &Error) -> Self {
        log::line(&with_causes(error));
        Self {
            retry: Retry::Idempotent,
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the connection to the database was lost: check what was done before you repeat",
            )
        }
    }

    /// Nobody knows what was done.
    fn outcome_unknown(error: &Error) -> Self {
        log::line(&with_causes(error));
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the outcome is unknown: check before you repeat",
        )
    }

    fn internal(error: &dyn StdError) -> Self {
        // The client gets no names of tables and servers.
        log::line(&with_causes(error));
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
            Error::Stopped { .. } => Self::shutting_down(),
            Error::Pool(_) => Self::temporary(
                StatusCode::SERVICE_UNAVAILABLE,
                "no connection to the database is free, or it does not answer",
            ),
            Error::OutcomeUnknown { .. } => Self::outcome_unknown(&error),
            _ if error.is_retryable() || error.is_timeout() => {
                Self::temporary(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            _ if is_connection_lost(&error) => Self::connection_lost(&error),
            _ => Self::internal(&error),
        }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
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
        if self.retry == Retry::Idempotent {
            response.extensions_mut().insert(MayBeDone);
        }
        if self.retry != Retry::Never {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{StatusCode, header};
    use axum::response::{IntoResponse, Response};
    use diesel::result::{DatabaseErrorKind, Error as DieselError};
    use diesel_locks::Error;

    use super::{MayBeDone, Problem};

    fn lost() -> DieselError {
        let text = "Lost connection to MySQL server during query".to_owned();
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(text))
    }

    fn answer(error: impl Into<Problem>) -> Response {
        error.into().into_response()
    }

    #[test]
    fn unknown_outcome_is_not_to_be_repeated() {
        let answer = answer(Error::OutcomeUnknown { source: lost() });
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!answer.headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn lost_connection_is_to_be_repeated_if_the_method_is_idempotent() {
        let answer = answer(lost());
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers().contains_key(header::RETRY_AFTER));
        assert!(answer.extensions().get::<MayBeDone>().is_some());
    }
}
