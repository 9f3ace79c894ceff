//! The error of a pool of asynchronous connections.

use std::time::Duration;

use diesel_async::pooled_connection::PoolError;
use thiserror::Error;

use super::human::Rounded;

/// Why a pool of asynchronous connections ([`AsyncPool`](crate::AsyncPool)) gave no connection:
/// [`Error::AsyncPool`](crate::Error::AsyncPool).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AsyncPoolError {
    /// No connection was free, and none could be opened, within the time-out of the pool or of the request.
    #[error("no connection within {}", Rounded(*waited))]
    TimedOut {
        /// How long the request waited for a connection.
        waited: Duration,
    },

    /// A connection could not be opened, or failed the check of the pool.
    #[error("a connection could not be opened, or failed its check")]
    Connection(#[from] PoolError),

    /// The pool is closed (deadpool).
    #[error("the pool is closed")]
    Closed,

    /// Another error of the pool: a hook failed, or its time-outs need a runtime.
    #[error("the pool failed")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}
