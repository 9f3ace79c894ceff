//! SQLite: one connection writes at a time, so an object lock is the database's write lock.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::prelude::*;

use super::active_isolation;
use crate::error::classify::{self, ErrorClass, classify};
use crate::inspect::object_lock::HeldObjectLock;
use crate::migrations::run::MigrationBackend;
use crate::migrations::write::{MigrationFile, MigrationFiles, migration_files};
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::transaction::backend::{SessionChange, TransactionBackend};
use crate::transaction::options::Access;
use crate::{
    Error, IsolationLevel, TransactionOptions, Wait, backoff, migrations, transaction::depth,
    transaction::run,
};

mod deadline;
mod lists;
mod sequences;
mod slot_sql;
mod slots;
mod sql;

use deadline::Deadline;

/// The time that a statement of a deferred transaction spends in SQLite's busy handler per attempt.
const BUSY_STEP: Duration = Duration::from_millis(10);

/// The number of attempts after which a deferred transaction counts as one that has not read.
const MIN_BUSY_ATTEMPTS: u32 = 3;

/// The first pause between two attempts to begin, and the longest.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(8);

impl TransactionBackend for SqliteConnection {
    fn validate(_: &mut Self, transaction: &TransactionOptions) -> Result<(), Error> {
        let unsupported = |what: &str, instead| {
            Err(Error::Unsupported {
                engine: "SQLite",
                mode: what.to_owned(),
                hint: instead,
            })
        };
        match transaction.isolation {
            None | Some(IsolationLevel::Serializable) => {}
            Some(level) => {
                return unsupported(
                    level.sql(),
                    "leave the isolation level out, or set IsolationLevel::Serializable, its only level",
                );
            }
        }
        if transaction.deferrable {
            return unsupported("DEFERRABLE", "leave it out");
        }
        Ok(())
    }

    fn begin(conn: &mut Self, transaction: &TransactionOptions) -> Result<SessionChange, Error> {
        if transaction.access != Some(Access::ReadOnly) {
            begin(conn, sql::BEGIN_IMMEDIATE)?;
            return Ok(SessionChange::None);
        }
        let already: bool = (sql::QueryOnly {}).get_result::<i32>(conn)? != 0;
        begin(conn, sql::BEGIN)?;
        if already {
            return Ok(SessionChange::None);
        }
        if let Err(error) = conn.batch_execute("PRAGMA query_only = 1") {
            AnsiTransactionManager::rollback_transaction(conn)?;
            return Err(error.into());
        }
        Ok(SessionChange::QueryOnly)
    }

    fn restore_session(conn: &mut Self, change: SessionChange) -> Result<(), Error> {
        if change == SessionChange::QueryOnly {
            conn.batch_execute("PRAGMA query_only = 0")?;
        }
        Ok(())
    }

    fn mark_isolation(
        conn: &mut Self,
        level: Option<IsolationLevel>,
    ) -> Option<active_isolation::Scope> {
        Some(active_isolation::enter(conn, level))
    }

    /// Sends BEGIN, which fails if a transaction is open: SQLite has no statement that reports it.
    fn assert_open(conn: &mut Self) -> Result<(), Error> {
        if conn.batch_execute("BEGIN").is_ok() {
            conn.batch_execute("ROLLBACK")?;
            return Err(run::ended(None));
        }
        // If the transaction of this crate has ended, Diesel's next savepoint has started another, which its RELEASE
        // commits. This crate's transaction holds the write lock from its start, so that a checkpoint fails in it.
        let ours_is_gone = depth::depth(conn)? > 1
            && active_isolation::entered(conn).is_some()
            && (sql::QueryOnly {}).get_result::<i32>(conn)? == 0
            && conn.batch_execute(sql::CHECKPOINT).is_ok();
        if ours_is_gone {
            return Err(run::ended(None));
        }
        Ok(())
    }

    fn commit(conn: &mut Self) -> Result<(), Error> {
        depth::break_on_panic(conn, |conn| conn.batch_execute(sql::COMMIT))
            .map_err(run::commit_error)?;
        depth::mark_closed(conn);
        Ok(())
    }

    fn roll_back(conn: &mut Self) -> QueryResult<bool> {
        let started = conn.batch_execute(sql::ROLLBACK).is_ok();
        if !started {
            // Fails if no transaction is open.
            let _ = conn.batch_execute("ROLLBACK");
        }
        Ok(started)
    }
}

impl ObjectLockBackend for SqliteConnection {
    /// All wait for the one write lock.
    #[cfg(feature = "r2d2")]
    fn queue_key(_: &Request) -> Vec<crate::ObjectId> {
        Vec::new()
    }

    fn begin_with_locks(conn: &mut Self, request: &Request) -> Result<LockOutcome, Error> {
        let grant = with_busy_timeout(conn, Duration::ZERO, |conn| {
            begin_immediate(conn, &Deadline::of(request))
        })?;
        if grant == LockOutcome::Acquired
            && let Err(error) = record_lock(conn, request)
        {
            AnsiTransactionManager::rollback_transaction(conn)?;
            return Err(error);
        }
        Ok(grant)
    }

    fn lock_in_transaction(conn: &mut Self, request: &Request) -> Result<LockOutcome, Error> {
        let step = request
            .remaining()
            .unwrap_or(BUSY_STEP)
            .clamp(Duration::from_millis(2), BUSY_STEP);
        // Rounded up, because the busy handler waits whole milliseconds: if it waited for less than `step`,
        // `upgrade_to_writer` would conclude that it had not waited.
        let millis = step.as_nanos().div_ceil(1_000_000);
        let step = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        let grant = with_busy_timeout(conn, step, |conn| {
            upgrade_to_writer(conn, &Deadline::of(request), step)
        })?;
        if grant == LockOutcome::Acquired {
            record_lock(conn, request)?;
        }
        Ok(grant)
    }

    fn purge_unlocked(conn: &mut Self) -> Result<usize, Error> {
        with_write_lock(conn, &Deadline::new(Wait::Forever), |conn| {
            Ok(sql::delete_kept().execute(conn)?)
        })
    }

    fn held_locks(_: &mut Self) -> Result<Vec<HeldObjectLock>, Error> {
        Err(Error::LocksNotShown {
            engine: "SQLite",
            reason: "a lock is the right to write to the database, and SQLite does not tell which connection has it",
        })
    }
}

impl MigrationFiles for SqliteConnection {
    const MIGRATION_FILES: &'static [MigrationFile] = migration_files!("sqlite");
}

impl MigrationBackend for SqliteConnection {
    fn migrate(conn: &mut Self) -> Result<Vec<String>, Error> {
        with_write_lock(conn, &Deadline::new(Wait::Forever), |conn| {
            migrations::run_pending(conn, migrations::SQLITE)
        })
    }
}

/// Waits for the write lock and runs `work` in a transaction of its own.
fn with_write_lock<T>(
    conn: &mut SqliteConnection,
    deadline: &Deadline<'_>,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    with_busy_timeout(conn, Duration::ZERO, |conn| begin_immediate(conn, deadline))?;
    match work(conn) {
        Ok(value) => {
            AnsiTransactionManager::commit_transaction(conn)?;
            Ok(value)
        }
        Err(error) => {
            AnsiTransactionManager::rollback_transaction(conn)?;
            Err(error)
        }
    }
}

/// Sends a batch that starts with BEGIN. If a later statement fails, a transaction is open that Diesel does not know
/// of, so this ends it. A transaction that the application has started by its own SQL stays open.
fn begin(conn: &mut SqliteConnection, batch: &str) -> QueryResult<()> {
    let started = depth::begin(conn, batch);
    if let Err(error) = &started
        && classify(error) != ErrorClass::Busy
        && !says(error, classify::sqlite::is_nested_begin)
    {
        // Fails if no transaction is open.
        let _ = conn.batch_execute("ROLLBACK");
    }
    started
}

/// Begins a transaction that holds the write lock. Polls, because SQLite has no queue and its busy handler sleeps up to
/// 100 ms at a time.
fn begin_immediate(
    conn: &mut SqliteConnection,
    deadline: &Deadline<'_>,
) -> Result<LockOutcome, Error> {
    for attempt in 0.. {
        let error = match begin(conn, sql::BEGIN_IMMEDIATE) {
            Ok(()) => return Ok(LockOutcome::Acquired),
            Err(error) => error,
        };
        if classify(&error) != ErrorClass::Busy {
            return Err(error.into());
        }
        if wait_for_writer(deadline, attempt, error)? == LockOutcome::Unavailable {
            return Ok(LockOutcome::Unavailable);
        }
    }
    unreachable!("attempts have no end")
}

/// Pauses before the next attempt. Returns [`LockOutcome::Unavailable`] if the request does not wait, and an error when
/// the time is up.
fn wait_for_writer(
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
        None => std::thread::sleep(pause),
        Some(Duration::ZERO) => return Err(deadline.timed_out(Some(error))),
        Some(left) => std::thread::sleep(pause.min(left)),
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
fn upgrade_to_writer(
    conn: &mut SqliteConnection,
    deadline: &Deadline<'_>,
    step: Duration,
) -> Result<LockOutcome, Error> {
    for attempt in 0.. {
        let started = std::time::Instant::now();
        let Err(error) = sql::upgrade_to_writer().execute(conn) else {
            return Ok(LockOutcome::Acquired);
        };
        if classify(&error) != ErrorClass::Busy {
            return Err(error.into());
        }
        if says(&error, classify::sqlite::locked_in_cache) {
            if wait_for_writer(deadline, attempt, error)? == LockOutcome::Unavailable {
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

/// Inserts the rows of kept locks. For transient locks it only accesses the table, so that a missing table is an error
/// as on the other engines.
fn record_lock(conn: &mut SqliteConnection, request: &Request) -> Result<(), Error> {
    if request.is_kept() {
        for id in &request.ids {
            sql::insert_kept(id.as_str()).execute(conn)?;
        }
    } else {
        sql::upgrade_to_writer().execute(conn)?;
    }
    Ok(())
}

/// Runs `work` with another `busy_timeout` and restores the connection's own afterwards, also after an error or panic.
/// If that fails, the connection is marked as broken, and a pool discards it.
fn with_busy_timeout<T>(
    conn: &mut SqliteConnection,
    timeout: Duration,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let before: i32 = (sql::BusyTimeout {}).get_result(conn)?;
    let wanted = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    if before == wanted {
        return work(conn);
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        conn.batch_execute(&sql::set_busy_timeout(wanted))?;
        work(conn)
    }));
    let restored = catch_unwind(AssertUnwindSafe(|| {
        conn.batch_execute(&sql::set_busy_timeout(before))
    }));
    if !matches!(restored, Ok(Ok(()))) {
        depth::mark_broken(conn);
    }
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    restored.unwrap_or_else(|panic| resume_unwind(panic))?;
    result
}
