//! SQLite: one connection writes at a time, so an object lock is the database's write lock. Its `Dialect`, migrations and sequences.

mod slots;
mod write_lock;

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use diesel::connection::{Connection, SimpleConnection, TransactionManagerStatus};
use diesel::dsl::{delete, insert_or_ignore_into};
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::sql_types::{Integer, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use crate::engine::dialect::Dialect;
use crate::engine::migration_runner::{Runner, SqlMigration, lists_records};
use crate::engine::sequence_queries::{
    DrawRequest, SequenceRow, Upsert, assert_exhausted, last_drawn, list_sequences,
};
use crate::engine::tables::diesel_locks_objects::{self, dsl};
use crate::engine::tables::{Named, diesel_locks_sequences as sequences, in_range, parts};
use crate::engine::{Engine, ending, has_engine};
use crate::error::texts::NEWER_SQLITE;
#[cfg(feature = "async-sqlite")]
use crate::link::nonblocking::sqlite::Conn;
use crate::link::raw_sql::{BusyTimeout, set_busy_timeout, statement};
use crate::link::{self, Link, Savepoint, depth};
use crate::rt::backoff::jittered;
use crate::rt::{self, caught};
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
has_engine!(HasBlockingEngine: SqliteConnection, SqliteEngine, in_process: true);
#[cfg(feature = "async-sqlite")]
has_engine!(async Conn, SqliteEngine, in_process: true);

#[async_trait]
impl<C: Link<Db = Sqlite>> Engine for SqliteEngine<'_, C> {
    fn is_in_process(&self) -> bool {
        true
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        self.0.status()
    }

    async fn savepoint(&mut self, act: Savepoint) -> Result<(), diesel::result::Error> {
        link::savepoint(self.0, act).await
    }

    fn validate(&self, transaction: &TransactionOptions) -> Result<(), Error> {
        let (mode, hint) = match transaction.isolation {
            Some(level) if level != IsolationLevel::Serializable => (
                level.sql(),
                "leave the isolation level out, or set IsolationLevel::Serializable, its only level",
            ),
            _ if transaction.deferrable => ("DEFERRABLE", "leave it out"),
            _ => return Ok(()),
        };
        Err(Error::Unsupported {
            engine: "SQLite",
            mode: mode.to_owned(),
            hint,
        })
    }

    /// Sets `query_only` for a transaction that only reads, unless it is on.
    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<bool, Error> {
        let conn = &mut *self.0;
        if transaction.access != Some(Access::ReadOnly) {
            begin(conn, BEGIN_IMMEDIATE).await?;
            return Ok(false);
        }
        let already: i32 = conn.get_result(QueryOnly {}).await?;
        begin(conn, BEGIN).await?;
        if already != 0 {
            return Ok(false);
        }
        if let Err(error) = conn.batch("PRAGMA query_only = 1").await {
            ending::roll_back(&mut SqliteEngine(conn)).await;
            return Err(error.into());
        }
        Ok(true)
    }

    async fn restore_session(&mut self) -> Result<(), Error> {
        Ok(self.0.batch("PRAGMA query_only = 0").await?)
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
            && depth::started(conn.status()).is_some()
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

    async fn migrate(
        &mut self,
        application: Option<&[SqlMigration]>,
    ) -> Result<Vec<String>, Error> {
        let mut ran = migrate(self.0).await?;
        let Some(application) = application else {
            return Ok(ran);
        };
        let before: i32 = self.0.get_result(BusyTimeout {}).await?;
        let longer = before.max(MIGRATION_BUSY_TIMEOUT);
        self.0.batch(&set_busy_timeout(longer)).await?;
        let applied = caught(Runner(self.0).run_all(application)).await;
        let restored = self.0.batch(&set_busy_timeout(before)).await;
        let applied = depth::break_if_panicked(self.0.status(), applied);
        ran.extend(applied?);
        restored?;
        Ok(ran)
    }

    async fn begin_with_locks(
        &mut self,
        request: &Request,
        _: bool,
    ) -> Result<Option<LockOutcome>, Error> {
        let outcome = acquire_write_lock(self.0, &Deadline::of(request), None).await?;
        if outcome.is_acquired()
            && let Err(error) = record_lock(self.0, request).await
        {
            ending::roll_back(&mut SqliteEngine(self.0)).await;
            return Err(error);
        }
        Ok(Some(outcome))
    }

    async fn lock_in_transaction(&mut self, request: &Request) -> Result<LockOutcome, Error> {
        let step = request
            .remaining()
            .unwrap_or(BUSY_STEP)
            .clamp(Duration::from_millis(2), BUSY_STEP);
        let outcome = acquire_write_lock(self.0, &Deadline::of(request), Some(step)).await?;
        if outcome.is_acquired() {
            record_lock(self.0, request).await?;
        }
        Ok(outcome)
    }

    async fn purge_unlocked(&mut self) -> Result<usize, Error> {
        begin_write(self.0, &Deadline::new(Wait::Forever)).await?;
        let purge = delete(diesel_locks_objects::table.filter(dsl::kept));
        let purged = self.0.execute(purge).await;
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

async fn begin_write(
    conn: &mut impl Link<Db = Sqlite>,
    deadline: &Deadline<'_>,
) -> Result<(), Error> {
    deadline.require(acquire_write_lock(conn, deadline, None).await?)
}

/// Commits the transaction of [`begin_write`], or rolls it back after an error, also of COMMIT. After some errors, as on a
/// full disk, SQLite has rolled it back by itself: that is no error of the rollback, and the connection stays usable.
async fn end<T>(conn: &mut impl Link<Db = Sqlite>, work: Result<T, Error>) -> Result<T, Error> {
    let ended = match work {
        Ok(value) => SqliteEngine(conn).commit().await.map(|()| value),
        Err(error) => Err(error),
    };
    if ended.is_err() {
        ending::roll_back(&mut SqliteEngine(conn)).await;
    }
    ended
}

/// Inserts the rows of kept locks. For transient locks it only accesses the table, so that a missing one is an error.
async fn record_lock(conn: &mut impl Link<Db = Sqlite>, request: &Request) -> Result<(), Error> {
    if request.is_kept() || !request.shared.is_empty() {
        for id in request.ids.iter().filter(|id| request.keeps(id)) {
            let row = (dsl::id.eq(Named(id.as_str())), dsl::kept.eq(true));
            let insert = insert_or_ignore_into(diesel_locks_objects::table).values(row);
            conn.execute(insert).await?;
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

/// A DELETE without matching rows: it acquires the write lock and changes no page, so that there is nothing to sync.
#[diesel::dsl::auto_type]
fn delete_nothing() -> _ {
    let none: Named<'static> = Named("");
    delete(diesel_locks_objects::table.filter(dsl::id.eq(none)))
}

statement! {
    Sqlite;
    /// Not 0 when the connection may only read.
    QueryOnly {} -> Integer,
    |self| { "PRAGMA query_only" }

    Version {} -> Text,
    |self| { "SELECT sqlite_version()" }

    /// The path of the database, empty if it is in memory.
    Path {} -> Text,
    |self| { "SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'" }

    /// Lists the columns of the tables, and of Diesel's table. Raw, because the DSL has no PRAGMA.
    Parts {} -> Text,
    |self| {
        "SELECT t.name || '.' || c.name || ' ' || c.type \
         FROM main.sqlite_master AS t, pragma_table_info(t.name, 'main') AS c WHERE t.type = 'table' \
         AND (t.name LIKE 'diesel!_locks!_%' ESCAPE '!' OR t.name = '__diesel_schema_migrations')"
    }
}

impl Dialect for Sqlite {
    // Not by `unixepoch('subsec')`, which is NULL before SQLite 3.42.
    const NOW: &'static str =
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000";
    const GREATEST: &'static str = "MAX";

    const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

    fn parts() -> &'static [String] {
        static PARTS: LazyLock<Vec<String>> =
            LazyLock::new(|| parts(["TEXT", "BOOLEAN", "INTEGER", "BIGINT", "BLOB"], &[]));
        &PARTS
    }

    async fn begin_migration(conn: &mut impl Link<Db = Self>) -> Result<(), Error> {
        begin_write(conn, &Deadline::new(Wait::Forever)).await
    }

    /// A transaction in a file of its own beside the database. Not the library's own lock on the database, which a statement
    /// outside of a transaction releases.
    async fn lock_migration(
        conn: &mut impl Link<Db = Self>,
    ) -> Result<Option<Box<dyn Send>>, Error> {
        let path: String = conn.get_result(Path {}).await?;
        if path.is_empty() {
            return Ok(None);
        }
        loop {
            let opened = SqliteConnection::establish(&format!("{path}-migrate"));
            let mut lock = opened.map_err(|error| Error::Migration(Box::new(error)))?;
            match lock.batch_execute("BEGIN EXCLUSIVE").map_err(Error::from) {
                Ok(()) => return Ok(Some(Box::new(lock))),
                Err(error) if error.is_timeout() => {}
                Err(error) => return Err(error),
            }
            drop(lock);
            rt::pause(jittered(LONGEST_PAUSE)).await;
        }
    }
}

/// The first version that has the functions for JSON and the operator `->>`.
const OLDEST: (u32, u32) = (3, 38);

/// Without WAL, COMMIT fails while another connection reads, as one does that looks whether it has to migrate. Without a
/// `busy_timeout` it fails at once, as do other statements while the file is new.
const MOST_ATTEMPTS: u32 = 100;

/// In milliseconds: what a statement outside of a transaction waits for others that look at the records or migrate.
const MIGRATION_BUSY_TIMEOUT: i32 = 60_000;

const LONGEST_PAUSE: Duration = Duration::from_millis(20);

async fn migrate(conn: &mut impl Link<Db = Sqlite>) -> Result<Vec<String>, Error> {
    let mut attempts = 1..MOST_ATTEMPTS;
    loop {
        match migrate_once(conn).await {
            Err(error) if error.is_timeout() && attempts.next().is_some() => {}
            migrated => return migrated,
        }
        rt::pause(jittered(LONGEST_PAUSE)).await;
    }
}

async fn migrate_once(conn: &mut impl Link<Db = Sqlite>) -> Result<Vec<String>, Error> {
    let version: String = conn.get_result(Version {}).await?;
    if !is_new_enough(&version) {
        return Err(Error::UnsuitableDatabase {
            found: format!("SQLite {version}"),
            needed: NEWER_SQLITE,
        });
    }
    match pending(conn).await {
        Ok(pending) if pending.is_empty() => return Ok(Vec::new()),
        // Another connection writes, which is waited for.
        Err(error) if !error.is_timeout() => return Err(error),
        Ok(_) | Err(_) => {}
    }
    begin_write(conn, &Deadline::new(Wait::Forever)).await?;
    let ran = async {
        let pending = pending(conn).await?;
        Runner(conn).run_own(pending).await
    };
    let ran = ran.await;
    end(conn, ran).await
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => false,
    }
}

async fn pending(conn: &mut impl Link<Db = Sqlite>) -> Result<Vec<SqlMigration>, Error> {
    let parts: Vec<String> = conn.load(Parts {}).await?;
    Runner(conn).pending(&parts, lists_records(&parts)).await
}
