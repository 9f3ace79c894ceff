//! Errors as answers.

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use diesel_locks::Error;

/// The error of the handlers.
#[derive(Debug)]
pub(crate) struct AppError(Box<dyn std::error::Error + Send + Sync>);

impl<E> From<E> for AppError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match Error::find(&*self.0) {
            // Somebody else holds the lock or the slot, or the pool gave no connection.
            Some(error) if error.is_busy() => {
                // All connections are in use, or the database is down or refuses the password.
                if matches!(error, Error::AsyncPool(_)) {
                    eprintln!("{error}");
                }
                let headers = [(RETRY_AFTER, "1")];
                (StatusCode::SERVICE_UNAVAILABLE, headers, error.to_string()).into_response()
            }
            _ => {
                eprintln!("{:#}", anyhow::Error::from_boxed(self.0));
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}
