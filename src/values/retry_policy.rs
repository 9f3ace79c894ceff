//! When and after which pause a transaction is retried, by the database's error in that of the application.

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, Instant};

use crate::Error;
use crate::error::classify::{ErrorClass, classify};
use crate::rt::backoff;

/// When and how often a transaction that the database aborted is retried.
///
/// A transaction is retried after a deadlock, after a serialization failure (at COMMIT too), after SQLite's `database is locked`,
/// and, with [`retry_lock_timeouts`](Self::retry_lock_timeouts), after a lock time-out: [all
/// errors](crate::Error#time-outs-and-retries). `LockPool::run_transaction` also retries it on another
/// connection: after its connection was [lost](crate::Error::is_connection_lost) before COMMIT, and on a server that has become
/// read-only.
///
/// Before a retry the method sleeps for a random time up to a limit, which starts at 10 ms and doubles with each retry up to 1 s.
///
/// ```
/// use std::time::Duration;
/// use diesel_locks::RetryPolicy;
///
/// const PATIENT: RetryPolicy = RetryPolicy::max_attempts(10)
///     .max_elapsed(Duration::from_secs(60))
///     .backoff(Duration::from_millis(50), Duration::from_secs(5))
///     .retry_lock_timeouts();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias("backoff", "jitter", "deadlock"))]
pub struct RetryPolicy {
    max_attempts: u32,
    max_elapsed: Duration,
    initial_backoff: Duration,
    max_backoff: Duration,
    lock_timeouts: bool,
}

impl RetryPolicy {
    /// Creates a policy that allows this number of attempts, at least one
    /// ([`Error::InvalidRetry`](crate::Error::InvalidRetry)), and sets [`max_elapsed`](Self::max_elapsed) to 30 s.
    pub const fn max_attempts(attempts: u32) -> Self {
        Self {
            max_attempts: attempts,
            max_elapsed: Duration::from_secs(30),
            initial_backoff: Duration::from_millis(10),
            max_backoff: Duration::from_secs(1),
            lock_timeouts: false,
        }
    }

    /// Starts no attempt later than this time after the first attempt started; `LockPool::run_transaction` counts from the call. A
    /// running attempt is not interrupted.
    #[must_use]
    #[doc(alias("timeout", "deadline"))]
    pub const fn max_elapsed(mut self, time: Duration) -> Self {
        self.max_elapsed = time;
        self
    }

    /// Sets the limit of the first pause, and that of all.
    #[must_use]
    #[doc(alias("jitter", "delay", "pause"))]
    pub const fn backoff(mut self, initial: Duration, max: Duration) -> Self {
        self.initial_backoff = initial;
        self.max_backoff = max;
        self
    }

    /// Also retries after a lock time-out: `lock_timeout`, `NOWAIT`, `innodb_lock_wait_timeout`, [`Error::LockTimeout`].
    #[must_use]
    pub const fn retry_lock_timeouts(mut self) -> Self {
        self.lock_timeouts = true;
        self
    }
}

/// An error that a closure of [`run_transaction`](crate::TransactionExt::run_transaction) can return.
///
/// The database's error inside the application's decides whether to retry. Implemented for [`diesel::result::Error`], for this
/// crate's [`Error`], and for types that give access to the error inside (`AsRef<dyn Error>`): `anyhow::Error`, `Box<dyn Error>`,
/// `Box<dyn Error + Send + Sync>`. Implement it for an enum of the application as in
/// [the guide](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#your-own-error-type).
///
/// `Via` distinguishes the implementations of this crate; omit it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `TransactionError`: `diesel-locks` can't see the database's error in it",
    label = "the database's error decides whether the transaction is retried",
    note = "implement `diesel_locks::TransactionError` (one method) and `From<diesel_locks::Error>` for it, \
            or return `diesel::result::Error`, `diesel_locks::Error`, `anyhow::Error` or `Box<dyn Error>`"
)]
pub trait TransactionError<Via = ()>: From<Error> {
    /// Returns the database's error, or an error that has it as its source. `None` for an error of the application, which is
    /// not retried.
    fn database_error(&self) -> Option<&(dyn StdError + 'static)>;
}

impl TransactionError for diesel::result::Error {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

impl TransactionError for Error {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

/// Marks types with `AsRef<dyn Error>`.
#[derive(Clone, Copy, Debug)]
pub enum ViaAsRef {}

impl<E> TransactionError<ViaAsRef> for E
where
    E: From<Error> + AsRef<dyn StdError + 'static>,
{
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.as_ref())
    }
}

/// Marks `Box<dyn Error + Send + Sync>`.
#[derive(Clone, Copy, Debug)]
pub enum ViaAsRefSend {}

impl TransactionError<ViaAsRefSend> for Box<dyn StdError + Send + Sync> {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.as_ref())
    }
}

/// Why a transaction is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    Deadlock,
    SerializationFailure,
    Busy,
    LockTimeout,
    /// Before COMMIT.
    ConnectionLost,
    /// The server may have become a standby.
    ReadOnly,
}

impl fmt::Display for RetryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadlock => "deadlock",
            Self::SerializationFailure => "serialization failure",
            Self::Busy => "busy",
            Self::LockTimeout => "lock timeout",
            Self::ConnectionLost => "connection lost",
            Self::ReadOnly => "read only",
        })
    }
}

impl RetryReason {
    /// Returns the reason of the first error in the chain that the database or this crate returned.
    pub(crate) fn find(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(own) = Error::of(error) {
                return Self::from_crate_error(own);
            }
            if let Some(diesels) = error.downcast_ref::<diesel::result::Error>() {
                return Self::from_diesel_error(diesels);
            }
            next = error.source();
        }
        None
    }

    pub(crate) fn from_crate_error(error: &Error) -> Option<Self> {
        match error {
            Error::Deadlock { .. } => Some(Self::Deadlock),
            Error::SerializationFailure { .. } => Some(Self::SerializationFailure),
            Error::ReadOnly { .. } => Some(Self::ReadOnly),
            Error::Database(source) if classify(source) == ErrorClass::ConnectionLost => {
                Some(Self::ConnectionLost)
            }
            Error::LockTimeout { .. } => Some(Self::LockTimeout),
            Error::StatementTimeout { source } => Self::from_diesel_error(source),
            Error::PartlyLocked { source, .. } => Self::from_crate_error(source),
            _ => None,
        }
    }

    fn from_diesel_error(error: &diesel::result::Error) -> Option<Self> {
        if let diesel::result::Error::QueryBuilderError(inner) = error {
            return Error::find(&**inner).and_then(Self::from_crate_error);
        }
        match classify(error) {
            ErrorClass::Deadlock => Some(Self::Deadlock),
            ErrorClass::SerializationFailure => Some(Self::SerializationFailure),
            ErrorClass::Busy => Some(Self::Busy),
            ErrorClass::LockTimeout | ErrorClass::LockNotAvailable => Some(Self::LockTimeout),
            ErrorClass::ConnectionLost => Some(Self::ConnectionLost),
            ErrorClass::ReadOnly => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

/// The attempts of one transaction.
pub(crate) struct Retries {
    retry: RetryPolicy,
    /// Each attempt has a connection of its own.
    pub(crate) on_a_pool: bool,
    started: Instant,
    number: u32,
}

impl Retries {
    /// Without a policy there is one.
    pub(crate) fn new(retry: Option<RetryPolicy>, on_a_pool: bool) -> Result<Self, Error> {
        let retry = retry.unwrap_or(RetryPolicy::max_attempts(1).max_elapsed(Duration::MAX));
        if retry.max_attempts == 0 {
            let attempts = retry.max_attempts;
            return Err(Error::InvalidRetry { attempts });
        }
        Ok(Self {
            retry,
            on_a_pool,
            started: Instant::now(),
            number: 1,
        })
    }

    /// Returns whether a transaction that failed for this reason is retried.
    pub(crate) fn applies_to(&self, reason: RetryReason) -> bool {
        match reason {
            RetryReason::LockTimeout => self.retry.lock_timeouts,
            RetryReason::ConnectionLost | RetryReason::ReadOnly => self.on_a_pool,
            _ => true,
        }
    }

    /// From 1 on.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[cfg(feature = "_pool")]
    pub(crate) fn max_elapsed(&self) -> Duration {
        self.retry.max_elapsed
    }

    /// The pause before the next attempt; `None` if there is no next attempt.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        if self.number >= self.retry.max_attempts {
            return None;
        }
        let (first, last) = (self.retry.initial_backoff, self.retry.max_backoff);
        let pause = backoff::full_jitter(backoff::growing(self.number - 1, first, last));
        if self.started.elapsed().saturating_add(pause) > self.retry.max_elapsed {
            return None;
        }
        self.number += 1;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_between_zero_and_a_limit_that_doubles() {
        let retry = RetryPolicy::max_attempts(u32::MAX)
            .max_elapsed(Duration::MAX)
            .backoff(Duration::from_millis(10), Duration::from_millis(70));
        let mut longest = [Duration::ZERO; 5];
        for _ in 0..500 {
            let mut attempts = Retries::new(Some(retry), false).expect("valid");
            for (place, limit) in [10, 20, 40, 70, 70].into_iter().enumerate() {
                let pause = attempts.pause().expect("no end");
                assert!(pause <= Duration::from_millis(limit), "{pause:?}");
                longest[place] = longest[place].max(pause);
            }
        }
        // All of 500 in the lower half is less likely than a broken machine.
        assert!(longest[0] > Duration::from_millis(5), "{longest:?}");
        assert!(longest[4] > Duration::from_millis(35), "{longest:?}");
    }

    #[cfg(feature = "_mysql")]
    #[test]
    fn transactions_of_unknown_outcome_are_not_tried_again() {
        let reason = |message: &str| {
            RetryReason::find(&diesel::result::Error::DatabaseError(
                diesel::result::DatabaseErrorKind::Unknown,
                Box::new(message.to_owned()),
            ))
        };
        let is_retried = |reason| {
            let policy = Some(RetryPolicy::max_attempts(2));
            Retries::new(policy, false)
                .expect("valid")
                .applies_to(reason)
        };
        assert!(!is_retried(RetryReason::ConnectionLost), "on a connection");
        let unknown = "Got error 5 - 'Transaction not registered' during COMMIT";
        assert_eq!(reason(unknown), None);
        let no_quorum = "WSREP has not yet prepared node for application use";
        assert_eq!(reason(no_quorum), Some(RetryReason::ConnectionLost));
        let certified = "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT";
        assert_eq!(reason(certified), Some(RetryReason::Deadlock));
        let plugin = "Plugin instructed the server to rollback the current transaction.";
        assert_eq!(reason(plugin), Some(RetryReason::SerializationFailure));
    }
}
