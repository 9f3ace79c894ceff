//! The error of a pool of asynchronous connections.

use std::time::Duration;

#[cfg(feature = "deadpool")]
use ::deadpool::managed::TimeoutType;
use diesel_async::pooled_connection::PoolError;
#[cfg(feature = "bb8")]
use diesel_async::pooled_connection::bb8;
#[cfg(feature = "deadpool")]
use diesel_async::pooled_connection::deadpool;

#[cfg(any(feature = "bb8", feature = "deadpool"))]
use crate::error::Error;
use crate::error::texts::Rounded;

/// Why a [`Pool`](crate::Pool) of diesel-async gave no connection: [`Error::AsyncPool`](crate::Error::AsyncPool).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AsyncPoolError {
    /// No connection was free, and none could be opened, within the time-out of the pool or of the request.
    #[error("{}", timed_out(*waited, *step))]
    TimedOut {
        /// How long the request waited for a connection. `None` in an error that the application got of the pool itself.
        waited: Option<Duration>,
        /// What the request waited for at last. `None` if the pool does not tell (bb8).
        step: Option<PoolStep>,
    },

    /// A connection could not be opened, or failed the check of the pool.
    #[error("a connection could not be opened, or failed its check")]
    Connection(#[from] PoolError),

    /// The pool is closed (deadpool).
    #[error("the pool is closed")]
    Closed,

    /// A hook of the pool failed on a connection that was opened (`post_create` of deadpool).
    #[error("a hook of the pool failed on a new connection")]
    Hook(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Another error of the pool: its time-outs need a runtime.
    #[error("the pool failed")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What deadpool's own `get` returns.
#[cfg(feature = "deadpool")]
impl From<deadpool::PoolError> for AsyncPoolError {
    fn from(error: deadpool::PoolError) -> Self {
        match error {
            deadpool::PoolError::Timeout(kind) => Self::TimedOut {
                waited: None,
                step: Some(match kind {
                    TimeoutType::Wait => PoolStep::Queue,
                    TimeoutType::Create | TimeoutType::Recycle => PoolStep::Connect,
                }),
            },
            deadpool::PoolError::Backend(error) => Self::Connection(error),
            deadpool::PoolError::Closed => Self::Closed,
            deadpool::PoolError::PostCreateHook(error) => Self::Hook(Box::new(error)),
            error @ deadpool::PoolError::NoRuntimeSpecified => Self::Other(Box::new(error)),
        }
    }
}

/// What bb8's own `get` returns.
#[cfg(feature = "bb8")]
impl From<bb8::RunError> for AsyncPoolError {
    fn from(error: bb8::RunError) -> Self {
        match error {
            bb8::RunError::User(error) => Self::Connection(error),
            bb8::RunError::TimedOut => Self::TimedOut {
                waited: None,
                step: None,
            },
        }
    }
}

/// An application that takes a connection of its pool by `pool.get().await?` gets the error that `LockPool` returns.
#[cfg(feature = "deadpool")]
impl From<deadpool::PoolError> for Error {
    fn from(error: deadpool::PoolError) -> Self {
        Self::AsyncPool(error.into())
    }
}

/// An application that takes a connection of its pool by `pool.get().await?` gets the error that `LockPool` returns.
#[cfg(feature = "bb8")]
impl From<bb8::RunError> for Error {
    fn from(error: bb8::RunError) -> Self {
        Self::AsyncPool(error.into())
    }
}

/// What a request to a pool waits for, one after the other: [`AsyncPoolError::TimedOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolStep {
    /// One of the pool's connections, which are all in use (deadpool's time-out `wait`). A `LockPool` or `SlotRenewer` leaves one of
    /// four or more, free or not, to the application's own queries.
    Queue,
    /// The database, which opens or checks a connection (deadpool's time-outs `create` and `recycle`).
    Connect,
}

fn timed_out(waited: Option<Duration>, step: Option<PoolStep>) -> String {
    let missed = match step {
        None => "no connection",
        Some(PoolStep::Queue) => "no connection was free",
        Some(PoolStep::Connect) => "no connection was opened or checked",
    };
    match waited {
        None => format!("{missed} within the time-out of the pool"),
        Some(waited) => format!("{missed} within {}", Rounded(waited)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_tells_what_was_waited_for() {
        let waited = Some(Duration::from_secs(2));
        for (step, missed) in [
            (None, "no connection"),
            (Some(PoolStep::Queue), "no connection was free"),
            (
                Some(PoolStep::Connect),
                "no connection was opened or checked",
            ),
        ] {
            let message = AsyncPoolError::TimedOut { waited, step }.to_string();
            assert_eq!(message, format!("{missed} within 2000 ms"));
        }
    }

    #[cfg(all(feature = "bb8", feature = "deadpool"))]
    #[test]
    fn error_of_the_pool_itself_is_found_and_busy_unless_the_pool_is_closed() {
        let errors: [Error; 5] = [
            bb8::RunError::TimedOut.into(),
            deadpool::PoolError::Timeout(TimeoutType::Wait).into(),
            deadpool::PoolError::Timeout(TimeoutType::Create).into(),
            deadpool::PoolError::Closed.into(),
            deadpool::PoolError::NoRuntimeSpecified.into(),
        ];
        let busy = errors.each_ref().map(Error::is_busy);
        assert_eq!(busy, [true, true, true, false, false]);
        let shown = errors.map(|error| match error {
            Error::AsyncPool(error) => error.to_string(),
            error => panic!("{error:?}"),
        });
        assert_eq!(
            shown,
            [
                "no connection within the time-out of the pool",
                "no connection was free within the time-out of the pool",
                "no connection was opened or checked within the time-out of the pool",
                "the pool is closed",
                "the pool failed",
            ]
        );
    }
}
