//! SQLite: one connection writes at a time, so an object lock is the database's write lock.

mod migrations;
mod slot_sql;
mod slots;
mod write_lock;

use std::time::Duration;

use async_trait::async_trait;
use diesel::connection::TransactionManagerStatus;
use diesel::dsl::{delete, insert_or_ignore_into};
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::sql_types::Integer;
use diesel::sqlite::Sqlite;
#[cfg(feature = "async-sqlite")]
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};

use crate::engine::operations::{DrawRequest, SequenceRow, SessionChange, TransactionBackend};
use crate::engine::sequence_queries::{Upsert, assert_exhausted, last_drawn, list_sequences};
use crate::engine::tables::diesel_locks_objects::{self, dsl};
use crate::engine::tables::{Named, diesel_locks_sequences as sequences, in_range};
use crate::engine::{Engine, active_isolation, ending, has_engine};
#[cfg(feature = "async-sqlite")]
use crate::link::nonblocking::sqlite::Conn;
use crate::link::raw_sql::statement;
use crate::link::{self, On, depth};
use crate::rt::caught;
use crate::values::held_object_lock::HeldObjectLock;
use crate::values::list_options::ListRequest;
use crate::values::lock_request::{LockOutcome, Request};
use crate::values::transaction_options::Access;
use crate::{Error, IsolationLevel, Sequence, TransactionOptions, Wait};

use crate::engine::sqlite::write_lock::{Deadline, acquire_write_lock, begin};

/// The time that a statement of a deferred transaction spends in SQLite's busy handler per attempt.
const BUSY_STEP: Duration = Duration::from_millis(10);

pub(crate) struct SqliteEngine<'c, C>(pub(crate) &'c mut C);

#[cfg(feature = "sqlite")]
has_engine!(HasBlockingEngine: diesel::SqliteConnection, SqliteEngine, in_process: true);
#[cfg(feature = "async-sqlite")]
has_engine!(HasAsyncEngine: Conn, SqliteEngine, in_process: true);
#[cfg(feature = "async-sqlite")]
has_engine!(
    HasBlockingEngine: AsyncConnectionWrapper<Conn, B>, SqliteEngine, in_process: true;
    <B: BlockOn + Send>
);

#[async_trait]
impl<C: On<Sqlite>> TransactionBackend for SqliteEngine<'_, C> {
    fn is_in_process(&self) -> bool {
        true
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        self.0.status()
    }

    async fn begin_savepoint(&mut self) -> Result<(), diesel::result::Error> {
        self.0.begin_nested().await
    }

    async fn release_savepoint(&mut self) -> Result<(), diesel::result::Error> {
        link::release(self.0).await
    }

    async fn roll_back_to_savepoint(&mut self) -> Result<(), diesel::result::Error> {
        self.0.roll_back().await
    }

    fn validate(&self, transaction: &TransactionOptions) -> Result<(), Error> {
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

    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<SessionChange, Error> {
        let conn = &mut *self.0;
        if transaction.access != Some(Access::ReadOnly) {
            begin(conn, BEGIN_IMMEDIATE).await?;
            return Ok(SessionChange::None);
        }
        let already: i32 = conn.get_result(QueryOnly {}).await?;
        begin(conn, BEGIN).await?;
        if already != 0 {
            return Ok(SessionChange::None);
        }
        if let Err(error) = conn.batch("PRAGMA query_only = 1").await {
            ending::roll_back(&mut SqliteEngine(conn)).await;
            return Err(error.into());
        }
        Ok(SessionChange::QueryOnly)
    }

    async fn restore_session(&mut self, change: SessionChange) -> Result<(), Error> {
        if change == SessionChange::QueryOnly {
            self.0.batch("PRAGMA query_only = 0").await?;
        }
        Ok(())
    }

    fn mark_isolation(&mut self, level: Option<IsolationLevel>) -> Option<active_isolation::Scope> {
        Some(active_isolation::enter(&*self.0, level))
    }

    /// Sends BEGIN, which fails if a transaction is open: SQLite has no statement that reports it.
    async fn assert_open(&mut self) -> Result<(), Error> {
        let conn = &mut *self.0;
        if conn.batch("BEGIN").await.is_ok() {
            conn.batch("ROLLBACK").await?;
            return Err(ending::ended(None));
        }
        // If the transaction of this crate has ended, Diesel's next savepoint has started another, which its RELEASE
        // commits. This crate's transaction holds the write lock from its start, so that a checkpoint fails in it.
        let ours_is_gone = depth::depth(conn.status())? > 1
            && active_isolation::entered(conn).is_some()
            && conn.get_result::<_, i32>(QueryOnly {}).await? == 0
            && conn.batch(CHECKPOINT).await.is_ok();
        if ours_is_gone {
            return Err(ending::ended(None));
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Error> {
        let committed = caught(self.0.batch(COMMIT)).await;
        depth::break_if_panicked(self.0.status(), committed).map_err(ending::commit_error)?;
        depth::mark_closed(self.0.status());
        Ok(())
    }

    async fn roll_back(&mut self) -> Result<bool, diesel::result::Error> {
        let started = self.0.batch(ROLLBACK).await.is_ok();
        if !started && let Err(error) = self.0.batch("ROLLBACK").await {
            use diesel::result::{DatabaseErrorKind::UnableToSendCommand, Error::DatabaseError};

            // Otherwise no transaction is open. diesel-async sends nothing while its runtime is shut down.
            if matches!(error, DatabaseError(UnableToSendCommand, _)) {
                self.0.abandon(&[]);
                return Err(error);
            }
        }
        Ok(started)
    }

    /// The closures around the future may go on. Their writes fail; a read is in a transaction, because Diesel takes a
    /// connection without one for sound after any error.
    fn abandon(&mut self, depth: u32, undo: Option<&str>) {
        let conn = &mut *self.0;
        match undo {
            _ if depth > 0 => conn.abandon(&["ROLLBACK", "BEGIN", "PRAGMA query_only = 1"]),
            // It waits for another connection that writes, and the thread that drops the future waits for it: not for the
            // time that the application has set.
            Some(undo) => conn.abandon(&["ROLLBACK", "PRAGMA busy_timeout = 200", undo]),
            None => conn.abandon(&["ROLLBACK"]),
        }
    }
}

#[async_trait]
impl<C: On<Sqlite>> Engine for SqliteEngine<'_, C> {
    async fn migrate(&mut self) -> Result<Vec<String>, Error> {
        migrations::migrate(self.0).await
    }

    async fn begin_with_locks(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        let grant = acquire_write_lock(self.0, &Deadline::of(request), None).await?;
        if grant == LockOutcome::Acquired
            && let Err(error) = record_lock(self.0, request).await
        {
            ending::roll_back(&mut SqliteEngine(self.0)).await;
            return Err(error);
        }
        Ok(grant)
    }

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        let step = request
            .remaining()
            .unwrap_or(BUSY_STEP)
            .clamp(Duration::from_millis(2), BUSY_STEP);
        let grant = acquire_write_lock(self.0, &Deadline::of(request), Some(step)).await?;
        if grant == LockOutcome::Acquired {
            record_lock(self.0, request).await?;
        }
        Ok(grant)
    }

    async fn purge_unlocked(&mut self) -> Result<usize, Error> {
        begin_write(self.0, &Deadline::new(Wait::Forever)).await?;
        let purged = self.0.execute(delete_kept()).await;
        end(self.0, purged.map_err(Error::from)).await
    }

    async fn held_locks(&mut self) -> Result<Vec<HeldObjectLock>, Error> {
        Err(Error::LocksNotShown {
            engine: "SQLite",
            reason: "a lock is the right to write to the database, and SQLite does not tell which connection has it",
        })
    }

    async fn draw(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let drawn: Option<i64> = self.0.get_optional(Upsert(draw)).await?;
        if drawn.is_none() {
            assert_exhausted(draw, self.last(draw.sequence).await?)?;
        }
        Ok(drawn)
    }

    async fn last(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = last_drawn(Named(sequence.name()), Named(sequence.scope()));
        Ok(self.0.get_optional(last).await?)
    }

    async fn list_sequences(&mut self, request: &ListRequest) -> Result<Vec<SequenceRow>, Error> {
        let query = list_sequences(request.limit).into_boxed::<Sqlite>();
        let query = in_range(query, sequences::name, &request.names);
        let query = in_range(query, sequences::scope, &request.keys);
        Ok(self.0.load(query).await?)
    }
}

async fn begin_write(conn: &mut impl On<Sqlite>, deadline: &Deadline<'_>) -> Result<(), Error> {
    deadline.require(acquire_write_lock(conn, deadline, None).await?)
}

/// Commits the transaction of [`begin_write`], or rolls it back after an error, also of COMMIT. After some errors, as on a
/// full disk, SQLite has rolled it back by itself: that is no error of the rollback, and the connection stays usable.
async fn end<T>(conn: &mut impl On<Sqlite>, work: Result<T, Error>) -> Result<T, Error> {
    let ended = match work {
        Ok(value) => SqliteEngine(conn).commit().await.map(|()| value),
        Err(error) => Err(error),
    };
    if ended.is_err() {
        ending::roll_back(&mut SqliteEngine(conn)).await;
    }
    ended
}

/// Inserts the rows of kept locks. For transient locks it only accesses the table, so that a missing table is an error
/// as on the other engines.
async fn record_lock(conn: &mut impl On<Sqlite>, request: &Request) -> Result<(), Error> {
    if request.is_kept() {
        for id in &request.ids {
            conn.execute(insert_kept(Named(id.as_str()))).await?;
        }
    } else {
        conn.execute(delete_nothing()).await?;
    }
    Ok(())
}

/// The savepoint distinguishes the transaction from one that replaced it when the application sent COMMIT and BEGIN.
const BEGIN: &str = "BEGIN; SAVEPOINT diesel_locks_started";
const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE; SAVEPOINT diesel_locks_started";
const COMMIT: &str = "RELEASE diesel_locks_started; COMMIT";
const ROLLBACK: &str = "RELEASE diesel_locks_started; ROLLBACK";

/// Fails in a transaction that has read or written, or that started with the write lock.
const CHECKPOINT: &str = "PRAGMA main.wal_checkpoint";

/// A DELETE without matching rows: it acquires the write lock and changes no page, so that a transaction without other
/// writes has nothing to sync.
#[diesel::dsl::auto_type]
fn delete_nothing() -> _ {
    let none: Named<'static> = Named("");
    delete(diesel_locks_objects::table.filter(dsl::id.eq(none)))
}

#[diesel::dsl::auto_type]
fn insert_kept<'a>(id: Named<'a>) -> _ {
    insert_or_ignore_into(diesel_locks_objects::table).values((dsl::id.eq(id), dsl::kept.eq(true)))
}

#[diesel::dsl::auto_type]
fn delete_kept() -> _ {
    delete(diesel_locks_objects::table.filter(dsl::kept))
}

statement! {
    Sqlite;
    /// Not 0 when the connection may only read.
    QueryOnly {} -> Integer,
    |self| { "PRAGMA query_only" }
}
