//! SQLite: one connection writes at a time, so an object lock is the database's write lock.

use std::panic::resume_unwind;
use std::time::Duration;

use diesel::QueryResult;
use diesel::sqlite::{Sqlite, SqliteConnection};

use super::{active_isolation, has_engine, transactions_of_link};
use crate::error::classify::{self, ErrorClass, classify};
use crate::inspect::object_lock::HeldObjectLock;
use crate::link::Link;
use crate::migrations::run::MigrationBackend;
use crate::migrations::write::{MigrationFile, MigrationFiles, migration_files};
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::poll::{caught, poll_once};
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

has_engine!(SqliteConnection, Sqlite);

impl<C: Link<Backend = Sqlite>> TransactionBackend<C> for Sqlite {
    transactions_of_link!(C);

    fn validate(_: &mut C, transaction: &TransactionOptions) -> Result<(), Error> {
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

    async fn begin(conn: &mut C, transaction: &TransactionOptions) -> Result<SessionChange, Error> {
        if transaction.access != Some(Access::ReadOnly) {
            begin(conn, sql::BEGIN_IMMEDIATE).await?;
            return Ok(SessionChange::None);
        }
        let already: i32 = conn.get_result(sql::QueryOnly {}).await?;
        begin(conn, sql::BEGIN).await?;
        if already != 0 {
            return Ok(SessionChange::None);
        }
        if let Err(error) = conn.batch("PRAGMA query_only = 1").await {
            conn.roll_back().await?;
            return Err(error.into());
        }
        Ok(SessionChange::QueryOnly)
    }

    async fn restore_session(conn: &mut C, change: SessionChange) -> Result<(), Error> {
        if change == SessionChange::QueryOnly {
            conn.batch("PRAGMA query_only = 0").await?;
        }
        Ok(())
    }

    fn mark_isolation(
        conn: &mut C,
        level: Option<IsolationLevel>,
    ) -> Option<active_isolation::Scope> {
        Some(active_isolation::enter(conn, level))
    }

    /// Sends BEGIN, which fails if a transaction is open: SQLite has no statement that reports it.
    async fn assert_open(conn: &mut C) -> Result<(), Error> {
        if conn.batch("BEGIN").await.is_ok() {
            conn.batch("ROLLBACK").await?;
            return Err(run::ended(None));
        }
        // If the transaction of this crate has ended, Diesel's next savepoint has started another, which its RELEASE
        // commits. This crate's transaction holds the write lock from its start, so that a checkpoint fails in it.
        let ours_is_gone = depth::depth(conn)? > 1
            && active_isolation::entered(conn).is_some()
            && conn.get_result::<_, i32>(sql::QueryOnly {}).await? == 0
            && conn.batch(sql::CHECKPOINT).await.is_ok();
        if ours_is_gone {
            return Err(run::ended(None));
        }
        Ok(())
    }

    async fn commit(conn: &mut C) -> Result<(), Error> {
        let committed = caught(conn.batch(sql::COMMIT)).await;
        depth::break_if_panicked(conn, committed).map_err(run::commit_error)?;
        depth::mark_closed(conn);
        Ok(())
    }

    async fn roll_back(conn: &mut C) -> QueryResult<bool> {
        let started = conn.batch(sql::ROLLBACK).await.is_ok();
        if !started {
            // Fails if no transaction is open.
            let _ = conn.batch("ROLLBACK").await;
        }
        Ok(started)
    }
}

impl<C: Link<Backend = Sqlite>> ObjectLockBackend<C> for Sqlite {
    /// All wait for the one write lock.
    #[cfg(feature = "r2d2")]
    fn queue_key(_: &Request) -> Vec<crate::ObjectId> {
        Vec::new()
    }

    async fn begin_with_locks(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        let grant = acquire_write_lock(conn, &Deadline::of(request), Acquisition::Begin).await?;
        if grant == LockOutcome::Acquired
            && let Err(error) = record_lock(conn, request).await
        {
            conn.roll_back().await?;
            return Err(error);
        }
        Ok(grant)
    }

    async fn lock_in_transaction(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        let step = request
            .remaining()
            .unwrap_or(BUSY_STEP)
            .clamp(Duration::from_millis(2), BUSY_STEP);
        // Rounded up, because the busy handler waits whole milliseconds: if it waited for less than `step`,
        // `upgrade_to_writer` would conclude that it had not waited.
        let millis = step.as_nanos().div_ceil(1_000_000);
        let step = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        let acquisition = Acquisition::Upgrade { step };
        let grant = acquire_write_lock(conn, &Deadline::of(request), acquisition).await?;
        if grant == LockOutcome::Acquired {
            record_lock(conn, request).await?;
        }
        Ok(grant)
    }

    async fn purge_unlocked(conn: &mut C) -> Result<usize, Error> {
        begin_write(conn, &Deadline::new(Wait::Forever)).await?;
        let purged = conn.execute(sql::delete_kept()).await;
        end_write(conn, purged.map_err(Error::from)).await
    }

    async fn held_locks(_: &mut C) -> Result<Vec<HeldObjectLock>, Error> {
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
        poll_once(begin_write(conn, &Deadline::new(Wait::Forever)))?;
        let ran = migrations::run_pending(conn, migrations::SQLITE);
        poll_once(end_write(conn, ran))
    }
}

/// Waits for the write lock, and begins a transaction for [`end_write`].
async fn begin_write(
    conn: &mut impl Link<Backend = Sqlite>,
    deadline: &Deadline<'_>,
) -> Result<(), Error> {
    acquire_write_lock(conn, deadline, Acquisition::Begin).await?;
    Ok(())
}

/// Ends a transaction that runs nothing of the application.
async fn end_write<T>(
    conn: &mut impl Link<Backend = Sqlite>,
    work: Result<T, Error>,
) -> Result<T, Error> {
    match &work {
        Ok(_) => conn.commit().await?,
        Err(_) => conn.roll_back().await?,
    }
    work
}

/// Sends a batch that starts with BEGIN. If a later statement fails, a transaction is open that Diesel does not know
/// of, so this ends it. A transaction that the application has started by its own SQL stays open.
async fn begin(conn: &mut impl Link<Backend = Sqlite>, batch: &str) -> QueryResult<()> {
    let started = caught(conn.begin(batch)).await;
    let started = depth::break_if_panicked(conn, started);
    if let Err(error) = &started
        && classify(error) != ErrorClass::Busy
        && !says(error, classify::sqlite::is_nested_begin)
    {
        // Fails if no transaction is open.
        let _ = conn.batch("ROLLBACK").await;
    }
    started
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
        None => C::pause(pause).await,
        Some(Duration::ZERO) => return Err(deadline.timed_out(Some(error))),
        Some(left) => C::pause(pause.min(left)).await,
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

/// Inserts the rows of kept locks. For transient locks it only accesses the table, so that a missing table is an error
/// as on the other engines.
async fn record_lock(
    conn: &mut impl Link<Backend = Sqlite>,
    request: &Request,
) -> Result<(), Error> {
    if request.is_kept() {
        for id in &request.ids {
            conn.execute(sql::insert_kept(id.as_str())).await?;
        }
    } else {
        conn.execute(sql::upgrade_to_writer()).await?;
    }
    Ok(())
}

/// How to acquire the write lock.
#[derive(Clone, Copy)]
enum Acquisition {
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
async fn acquire_write_lock(
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
    restored.unwrap_or_else(|panic| resume_unwind(panic))?;
    result
}
