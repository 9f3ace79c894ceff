//! SQLite: one connection writes at a time, so an object lock is the database's write lock.

use std::time::Duration;

use diesel::QueryResult;
use diesel::sqlite::Sqlite;

use super::{active_isolation, transactions_of_link};
use crate::inspect::object_lock::HeldObjectLock;
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::poll::caught;
use crate::transaction::backend::{SessionChange, TransactionBackend};
use crate::transaction::options::Access;
use crate::{
    Error, IsolationLevel, TransactionOptions, Wait, transaction::depth, transaction::run,
};

#[cfg(feature = "async-sqlite")]
pub(crate) mod begin_at_once;
mod deadline;
mod lists;
mod migrations;
mod sequences;
mod slot_sql;
mod slots;
mod sql;
mod write_lock;

use deadline::Deadline;
use write_lock::{Acquisition, acquire_write_lock, begin};

/// The time that a statement of a deferred transaction spends in SQLite's busy handler per attempt.
const BUSY_STEP: Duration = Duration::from_millis(10);

#[cfg(feature = "sqlite")]
super::has_engine!(diesel::SqliteConnection, Sqlite);
#[cfg(feature = "async-sqlite")]
super::has_async_engine!(crate::link::nonblocking::sqlite::Conn, Sqlite);

impl<C: Link<Backend = Sqlite>> TransactionBackend<C> for Sqlite {
    const IS_REMOTE: bool = false;

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
            run::roll_back(conn).await;
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
        if !started && let Err(error) = conn.batch("ROLLBACK").await {
            use diesel::result::{DatabaseErrorKind::UnableToSendCommand, Error::DatabaseError};

            // Otherwise no transaction is open. diesel-async sends nothing while its runtime is shut down.
            if matches!(error, DatabaseError(UnableToSendCommand, _)) {
                conn.abandon(&[]);
                return Err(error);
            }
        }
        Ok(started)
    }

    /// Rolls back outer transactions too: they can't be committed without what the future has not done. Then the closures
    /// around it may go on. Their writes fail; a read is in a transaction, because Diesel takes a connection without one
    /// for sound after any error.
    fn abandon(conn: &mut C, depth: u32, undo: Option<&str>) {
        match undo {
            _ if depth > 0 => conn.abandon(&["ROLLBACK", "BEGIN", "PRAGMA query_only = 1"]),
            // It waits for another connection that writes, and the thread that drops the future waits for it: not for the
            // time that the application has set.
            Some(undo) => conn.abandon(&["ROLLBACK", "PRAGMA busy_timeout = 200", undo]),
            None => conn.abandon(&["ROLLBACK"]),
        }
    }
}

impl<C: Link<Backend = Sqlite>> ObjectLockBackend<C> for Sqlite {
    /// All wait for the one write lock.
    #[cfg(feature = "_pool")]
    fn queue_key(_: &Request) -> Vec<crate::ObjectId> {
        Vec::new()
    }

    async fn begin_with_locks(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        let grant = acquire_write_lock(conn, &Deadline::of(request), Acquisition::Begin).await?;
        if grant == LockOutcome::Acquired
            && let Err(error) = record_lock(conn, request).await
        {
            run::roll_back(conn).await;
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
        end(conn, purged.map_err(Error::from)).await
    }

    async fn held_locks(_: &mut C) -> Result<Vec<HeldObjectLock>, Error> {
        Err(Error::LocksNotShown {
            engine: "SQLite",
            reason: "a lock is the right to write to the database, and SQLite does not tell which connection has it",
        })
    }
}

/// Waits for the write lock, and begins a transaction for [`end`].
async fn begin_write(
    conn: &mut impl Link<Backend = Sqlite>,
    deadline: &Deadline<'_>,
) -> Result<(), Error> {
    deadline.require(acquire_write_lock(conn, deadline, Acquisition::Begin).await?)
}

/// Commits the transaction of [`begin_write`], or rolls it back after an error, also of COMMIT. After some errors, as on a
/// full disk, SQLite has rolled it back by itself: that is no error of the rollback, and the connection stays usable.
async fn end<T>(
    conn: &mut impl Link<Backend = Sqlite>,
    work: Result<T, Error>,
) -> Result<T, Error> {
    let ended = match work {
        Ok(value) => commit(conn).await.map(|()| value),
        Err(error) => Err(error),
    };
    if ended.is_err() {
        run::roll_back(conn).await;
    }
    ended
}

async fn commit<C: Link<Backend = Sqlite>>(conn: &mut C) -> Result<(), Error> {
    <Sqlite as TransactionBackend<C>>::commit(conn).await
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
