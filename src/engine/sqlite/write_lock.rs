//! Acquires the database's write lock, at the beginning of a transaction or in one that is open.

use std::panic::resume_unwind;
use std::time::Duration;

use diesel::QueryResult;
use diesel::sqlite::Sqlite;

use super::deadline::Deadline;
use super::sql;
use crate::error::classify::{self, ErrorClass, classify};
use crate::link::Link;
use crate::object_lock::backend::LockOutcome;
use crate::poll::caught;
use crate::timer::Timer;
use crate::{Error, Wait, backoff, transaction::depth};

/// The number of attempts after which a deferred transaction counts as one that has not read.
const MIN_BUSY_ATTEMPTS: u32 = 3;

/// The first pause between two attempts to begin, and the longest.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(8);

/// Sends a batch that starts with BEGIN. If a later statement fails, a transaction is open that Diesel does not know
/// of, so this ends it. A transaction that the application has begun by its own SQL stays open.
pub(super) async fn begin(conn: &mut impl Link<Backend = Sqlite>, batch: &str) -> QueryResult<()> {
    let started = caught(conn.begin(batch)).await;
    let Err(error) = depth::break_if_panicked(conn, started) else {
        return Ok(());
    };
    if says(&error, classify::sqlite::is_nested_begin) {
        let source = Some(error);
        return Err(Error::UntrackedTransaction { source }.into());
    }
    if classify(&error) != ErrorClass::Busy {
        // Fails if no transaction is open.
        let _ = conn.batch("ROLLBACK").await;
    }
    Err(error)
}

/// Begins a transaction that holds the write lock. Polls, because SQLite has no queue and its busy handler sleeps up to
/// 100 ms at a time.
async fn begin_immediate<C: Link<Backend = Sqlite>>(
    conn: &mut C,
    deadline: &Deadline<'_>,
) -> Result<LockOutcome, Error> {
    for attempt in 0.. {
        let error = match begin(conn, sql::BEGIN_IMMEDIATE).await {
            Ok(()) => return Ok(LockOutcome::Acquired),
            Err(error) => error,
        };
        if classify(&error) != ErrorClass::Busy {
            return Err(error.into());
        }
        if wait_for_writer::<C>(deadline, attempt, error).await? == LockOutcome::Unavailable {
            return Ok(LockOutcome::Unavailable);
        }
    }
    unreachable!("attempts have no end")
}

/// Pauses before the next attempt. Returns [`LockOutcome::Unavailable`] if the request does not wait, and an error when
/// the time is up.
async fn wait_for_writer<C: Link>(
    deadline: &Deadline<'_>,
    attempt: u32,
    error: diesel::result::Error,
) -> Result<LockOutcome, Error> {
    if deadline.wait == Wait::No {
        return Ok(LockOutcome::Unavailable);
    }
    let longest = backoff::growing(attempt, MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
    let pause = backoff::jittered(longest);
    match deadline.remaining() {
        None => C::LockTimer::pause(pause).await,
        Some(Duration::ZERO) => return Err(deadline.timed_out(Some(error))),
        Some(left) => C::LockTimer::pause(pause.min(left)).await,
    }
    Ok(LockOutcome::Acquired)
}

/// Acquires the write lock in the open transaction.
///
/// A transaction that has already read gets `SQLITE_BUSY` at once, without the busy handler, while another connection
/// writes or if one has written since: waiting would not make its snapshot newer. A transaction that has not read yet
/// gets `SQLITE_BUSY` after the busy handler has waited for `step`. The message is the same ("database is locked"), so
/// only the elapsed time tells which case it is: a statement counts as having waited if [`MIN_BUSY_ATTEMPTS`] in a row
/// took as long.
///
/// Connections that share a cache get `SQLITE_LOCKED`, always at once. What one of them has read, no other can change
/// before its transaction ends, so this waits.
async fn upgrade_to_writer<C: Link<Backend = Sqlite>>(
    conn: &mut C,
    deadline: &Deadline<'_>,
    step: Duration,
) -> Result<LockOutcome, Error> {
    for attempt in 0.. {
        let started = std::time::Instant::now();
        let Err(error) = conn.execute(sql::upgrade_to_writer()).await else {
            return Ok(LockOutcome::Acquired);
        };
        if classify(&error) != ErrorClass::Busy {
            return Err(error.into());
        }
        if says(&error, classify::sqlite::locked_in_cache) {
            if wait_for_writer::<C>(deadline, attempt, error).await? == LockOutcome::Unavailable {
                return Ok(LockOutcome::Unavailable);
            }
            continue;
        }
        if started.elapsed() < step {
            return Err(Error::UnsuitableIsolation {
                resource: deadline.resource(),
                reason:
                    "the transaction has read, and another connection is writing or has written since: start the transaction with \
                     run_transaction or immediate_transaction, or lock before the first read"
                        .to_owned(),
            });
        }
        // On a busy machine a statement that has not waited may take as long.
        if attempt + 1 < MIN_BUSY_ATTEMPTS {
            continue;
        }
        if deadline.wait == Wait::No {
            return Ok(LockOutcome::Unavailable);
        }
        if deadline.remaining() == Some(Duration::ZERO) {
            return Err(deadline.timed_out(Some(error)));
        }
    }
    unreachable!("attempts have no end")
}

fn says(error: &diesel::result::Error, what: fn(&str) -> bool) -> bool {
    let diesel::result::Error::DatabaseError(_, information) = error else {
        return false;
    };
    what(information.message())
}

/// How to acquire the write lock.
#[derive(Clone, Copy)]
pub(super) enum Acquisition {
    /// By [`begin_immediate`].
    Begin,
    /// By [`upgrade_to_writer`].
    Upgrade { step: Duration },
}

impl Acquisition {
    /// The `busy_timeout` of the attempts.
    fn busy_timeout(self) -> Duration {
        match self {
            Self::Begin => Duration::ZERO,
            Self::Upgrade { step } => step,
        }
    }

    async fn run(
        self,
        conn: &mut impl Link<Backend = Sqlite>,
        deadline: &Deadline<'_>,
    ) -> Result<LockOutcome, Error> {
        match self {
            Self::Begin => begin_immediate(conn, deadline).await,
            Self::Upgrade { step } => upgrade_to_writer(conn, deadline, step).await,
        }
    }
}

/// Acquires the write lock with another `busy_timeout` and restores the connection's own afterwards, also after an error or
/// panic. If that fails, the connection is marked as broken, and a pool discards it.
pub(super) async fn acquire_write_lock(
    conn: &mut impl Link<Backend = Sqlite>,
    deadline: &Deadline<'_>,
    acquisition: Acquisition,
) -> Result<LockOutcome, Error> {
    let before: i32 = conn.get_result(sql::BusyTimeout {}).await?;
    let timeout = acquisition.busy_timeout().as_millis();
    let wanted = i32::try_from(timeout).unwrap_or(i32::MAX);
    if before == wanted {
        return acquisition.run(conn, deadline).await;
    }
    let result = caught(async {
        conn.batch(&sql::set_busy_timeout(wanted)).await?;
        acquisition.run(conn, deadline).await
    });
    let result = result.await;
    let restored = caught(async { conn.batch(&sql::set_busy_timeout(before)).await }).await;
    if !matches!(restored, Ok(Ok(()))) {
        depth::mark_broken(conn);
    }
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    let restored = restored.unwrap_or_else(|panic| resume_unwind(panic));
    // The first error takes precedence.
    let outcome = result?;
    restored?;
    Ok(outcome)
}
