//! Acquires the database's write lock, at the beginning of a transaction or in one that is open. Sets `busy_timeout` meanwhile, an
//! asynchronous connection also in its `begin`.

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel::sqlite::Sqlite;

use crate::engine::sqlite::{self, BUSY_STEP, begin_write};
use crate::error::classify::{ErrorClass, classify, is_nested_begin, locked_in_cache};
use crate::link::raw_sql::{BusyTimeout, set_busy_timeout};
use crate::link::{Link, depth};
use crate::rt::{self, backoff, caught};
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, Wait};

pub(crate) struct Deadline<'a> {
    wait: Wait,
    started: Instant,
    /// `None` for a change that locks no objects.
    request: Option<&'a Request>,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(wait: Wait) -> Self {
        Self {
            wait,
            started: Instant::now(),
            request: None,
        }
    }

    pub(crate) fn of(request: &'a Request) -> Self {
        Self {
            wait: request.wait,
            started: request.started,
            request: Some(request),
        }
    }

    fn remaining(&self) -> Option<Duration> {
        self.wait.remaining(self.started)
    }

    fn resource(&self) -> String {
        self.request.map_or_else(
            || "the write lock of the database".to_owned(),
            Request::resource,
        )
    }

    pub(crate) fn require(&self, outcome: LockOutcome) -> Result<(), Error> {
        match outcome {
            LockOutcome::Acquired => Ok(()),
            LockOutcome::Unavailable => Err(self.timed_out(None)),
        }
    }

    fn timed_out(&self, source: Option<diesel::result::Error>) -> Error {
        self.wait.timed_out(self.started, self.resource(), source)
    }
}

/// The time that a change waits for the write lock, unless `busy_timeout` is longer.
const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(8);

/// Sends a batch that starts with BEGIN. If a later statement fails, a transaction is open that Diesel does not know
/// of, so this ends it. A transaction that the application has begun by its own SQL stays open.
pub(crate) async fn begin(conn: &mut impl Link<Db = Sqlite>, batch: &str) -> QueryResult<()> {
    let started = caught(conn.begin(batch)).await;
    let Err(error) = depth::break_if_panicked(conn.status(), started) else {
        return Ok(());
    };
    if says(&error, is_nested_begin) {
        let source = Some(error);
        return Err(Error::UntrackedTransaction { source }.into());
    }
    if classify(&error) != ErrorClass::Busy {
        // Fails if no transaction is open.
        let _ = conn.batch("ROLLBACK").await;
    }
    Err(error)
}

async fn begin_immediate(
    conn: &mut impl Link<Db = Sqlite>,
    deadline: &Deadline<'_>,
) -> Result<LockOutcome, Error> {
    for attempt in 0.. {
        let Err(error) = begin(conn, sqlite::BEGIN_IMMEDIATE).await else {
            return Ok(LockOutcome::Acquired);
        };
        if classify(&error) != ErrorClass::Busy {
            return Err(error.into());
        }
        if wait_for_writer(deadline, attempt, error).await? == LockOutcome::Unavailable {
            return Ok(LockOutcome::Unavailable);
        }
    }
    unreachable!("attempts have no end")
}

/// Pauses before the next attempt. Returns [`LockOutcome::Unavailable`] if the request does not wait. Fails when time is up.
async fn wait_for_writer(
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
        None => rt::pause(pause).await,
        Some(Duration::ZERO) => return Err(deadline.timed_out(Some(error))),
        Some(left) => rt::pause(pause.min(left)).await,
    }
    Ok(LockOutcome::Acquired)
}

/// Acquires the write lock in the open transaction. A transaction that has read gets SQLITE_BUSY without a wait, and can't succeed
/// later: see "SQLite" in DESIGN.md.
async fn upgrade_to_writer(
    conn: &mut impl Link<Db = Sqlite>,
    deadline: &Deadline<'_>,
) -> Result<LockOutcome, Error> {
    let mut has_waited = false;
    for attempt in 0.. {
        let Err(error) = conn.execute(sqlite::delete_nothing()).await else {
            return Ok(LockOutcome::Acquired);
        };
        if classify(&error) != ErrorClass::Busy {
            return Err(error.into());
        }
        if says(&error, locked_in_cache) {
            if wait_for_writer(deadline, attempt, error).await? == LockOutcome::Unavailable {
                return Ok(LockOutcome::Unavailable);
            }
            continue;
        }
        if !has_waited && has_read(conn).await? {
            return Err(Error::UnsuitableIsolation {
                resource: deadline.resource(),
                reason:
                    "the transaction has read, and another connection is writing or has written since: start the transaction with \
                     run_transaction or immediate_transaction, or lock before the first read"
                        .to_owned(),
            });
        }
        has_waited = true;
        if deadline.wait == Wait::No {
            return Ok(LockOutcome::Unavailable);
        }
        if deadline.remaining() == Some(Duration::ZERO) {
            return Err(deadline.timed_out(Some(error)));
        }
    }
    unreachable!("attempts have no end")
}

/// Whether the open transaction has read: a checkpoint fails in it.
async fn has_read(conn: &mut impl Link<Db = Sqlite>) -> Result<bool, Error> {
    match conn.batch(sqlite::CHECKPOINT).await {
        Ok(()) => Ok(false),
        Err(error) if says(&error, locked_in_cache) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn says(error: &diesel::result::Error, what: fn(&str) -> bool) -> bool {
    let diesel::result::Error::DatabaseError(_, information) = error else {
        return false;
    };
    what(information.message())
}

/// Acquires the write lock: in the open transaction by statements that wait for the time of a step, and without one by a BEGIN.
/// The step is the `busy_timeout` meanwhile. Restores the connection's own afterwards, also after an error or panic. If that
/// fails, the connection is marked as broken, and a pool discards it.
pub(crate) async fn acquire_write_lock(
    conn: &mut impl Link<Db = Sqlite>,
    deadline: &Deadline<'_>,
    step: Option<Duration>,
) -> Result<LockOutcome, Error> {
    let before: i32 = conn.get_result(BusyTimeout {}).await?;
    let timeout = step.unwrap_or_default().as_millis();
    let wanted = i32::try_from(timeout).unwrap_or(i32::MAX);
    let result = caught(async {
        if before != wanted {
            conn.batch(&set_busy_timeout(wanted)).await?;
        }
        match step {
            Some(_) => upgrade_to_writer(conn, deadline).await,
            None => begin_immediate(conn, deadline).await,
        }
    });
    let result = result.await;
    let restored = if before == wanted {
        Ok(Ok(()))
    } else {
        caught(conn.batch(&set_busy_timeout(before))).await
    };
    if !matches!(restored, Ok(Ok(()))) {
        depth::mark_broken(conn.status());
    }
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    let restored = restored.unwrap_or_else(|panic| resume_unwind(panic));
    let outcome = result?;
    restored?;
    Ok(outcome)
}

/// Prepares for a change: acquires the write lock in the open transaction, or begins one of its own and returns `true`.
pub(crate) async fn begin_change(conn: &mut impl Link<Db = Sqlite>) -> Result<bool, Error> {
    if depth::depth(conn.status())? > 0 {
        ensure_writer(conn).await?;
        return Ok(false);
    }
    let deadline = write_deadline(conn).await?;
    begin_write(conn, &deadline).await?;
    Ok(true)
}

pub(crate) async fn ensure_writer(conn: &mut impl Link<Db = Sqlite>) -> Result<(), Error> {
    let deadline = write_deadline(conn).await?;
    deadline.require(acquire_write_lock(conn, &deadline, Some(BUSY_STEP)).await?)
}

async fn write_deadline(conn: &mut impl Link<Db = Sqlite>) -> Result<Deadline<'static>, Error> {
    let busy_timeout: i32 = conn.get_result(BusyTimeout {}).await?;
    let busy_timeout = Duration::from_millis(busy_timeout.unsigned_abs().into());
    Ok(Deadline::new(Wait::AtMost(
        busy_timeout.max(DEFAULT_WRITE_TIMEOUT),
    )))
}
