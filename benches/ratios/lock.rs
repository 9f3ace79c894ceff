//! What is compared: a transaction with one kind of lock, or with none.

use clap::ValueEnum;
use diesel::QueryResult;
use diesel_locks::Retention;
use diesel_locks::prelude::*;
use uuid::Uuid;

use crate::harness::{Backend, Engine, Value, Variant, statements};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lock {
    /// None: the transaction alone.
    Baseline,
    /// The 2010 insert-delete baseline: insert and delete a row of a lock table, by hand.
    InsertDelete,
    /// The engine's advisory lock.
    Advisory,
    /// `with_object_lock` that leaves no row.
    Transient,
    /// `with_object_lock` on a row that stays.
    Kept,
    /// By hand: `SELECT .. FOR SHARE` on a row that exists.
    ForShare,
    /// The engine's shared advisory lock.
    AdvisoryShared,
    /// `with_object_lock` with `LockRequest::shared`.
    Shared,
}

statements! {
    InsertRow = "INSERT INTO businessobjectlock (uuid, id, locked_ts) VALUES ($1, $2, $n)";
    DeleteRow = "DELETE FROM businessobjectlock WHERE uuid = $1";

    LockInTransaction = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    ShareInTransaction = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))";
    ShareRow = "SELECT 1::bigint FROM sharedobjects WHERE id = $1 FOR SHARE";
    ShareRowOnMysql = "SELECT 1 FROM sharedobjects WHERE id = $1 LOCK IN SHARE MODE";
    // Seconds that are longer than any wait of a benchmark.
    GetLock = "SELECT GET_LOCK($1, 600)";
    ReleaseLock = "SELECT RELEASE_LOCK($1)";
}

/// The table of the 2010 baseline, a table like any other, with two indexes; and one with the rows that are locked by hand.
pub(crate) fn create_tables(conn: &mut impl Backend) -> QueryResult<()> {
    conn.batch_execute("CREATE TABLE sharedobjects (id VARCHAR(80) NOT NULL PRIMARY KEY)")?;
    for connection in 0..8 {
        let id = Lock::ForShare.id(connection);
        conn.batch_execute(&format!("INSERT INTO sharedobjects VALUES ('{id}')"))?;
    }
    conn.batch_execute(
        "CREATE TABLE businessobjectlock (
          uuid VARCHAR(32) NOT NULL,
          id VARCHAR(80) NOT NULL,
          locked_ts TIMESTAMP NOT NULL,
          CONSTRAINT pk_businessobjectlock PRIMARY KEY (uuid),
          CONSTRAINT id_businessobjectlock UNIQUE (id)
        )",
    )
}

impl Variant for Lock {}

impl Lock {
    /// SQLite has no advisory locks, and no shared ones. MySQL and MariaDB have no shared advisory locks.
    pub(crate) fn exists_on(self, engine: Engine) -> bool {
        match self {
            Self::Advisory | Self::ForShare | Self::Shared => engine != Engine::Sqlite,
            Self::AdvisoryShared => engine == Engine::Postgres,
            Self::Baseline | Self::InsertDelete | Self::Transient | Self::Kept => true,
        }
    }

    /// The id that a connection locks. They differ by variant: a row that one variant keeps would exist for the next.
    pub(crate) fn id(self, connection: usize) -> String {
        format!("BondBO:{self:?}-{connection}")
    }

    /// `work` in a transaction, with this lock.
    pub(crate) fn cycle<C: Backend>(
        self,
        conn: &mut C,
        id: &str,
        work: impl FnOnce(&mut C) -> QueryResult<()>,
    ) -> QueryResult<()> {
        match self {
            Self::Baseline => conn.transaction(work),
            Self::InsertDelete => conn.transaction(|conn| {
                let uuid = Uuid::new_v4().simple().to_string();
                conn.change::<InsertRow>(&[Value::Text(&uuid), Value::Text(id)])?;
                conn.change::<DeleteRow>(&[Value::Text(&uuid)])?;
                work(conn)
            }),
            Self::Advisory if C::ENGINE == Engine::Postgres => conn.transaction(|conn| {
                conn.change::<LockInTransaction>(&[Value::Text(id)])?;
                work(conn)
            }),
            Self::AdvisoryShared => conn.transaction(|conn| {
                conn.change::<ShareInTransaction>(&[Value::Text(id)])?;
                work(conn)
            }),
            Self::ForShare => conn.transaction(|conn| {
                let found = if C::ENGINE == Engine::Postgres {
                    conn.number::<ShareRow>(&[Value::Text(id)])?
                } else {
                    conn.number::<ShareRowOnMysql>(&[Value::Text(id)])?
                };
                assert_eq!(found, Some(1), "the row");
                work(conn)
            }),
            Self::Shared => conn.with_object_lock(LockRequest::shared(id), work),
            // The lock belongs to the session and outlives the transaction, so it is released explicitly.
            Self::Advisory => {
                let taken = conn.number::<GetLock>(&[Value::Text(id)])?;
                assert_eq!(taken, Some(1), "GET_LOCK");
                let result = conn.transaction(work);
                let released = conn.number::<ReleaseLock>(&[Value::Text(id)])?;
                assert_eq!(released, Some(1), "RELEASE_LOCK");
                result
            }
            Self::Transient => conn.with_object_lock(id, work),
            Self::Kept => {
                conn.with_object_lock(LockRequest::new(id).retention(Retention::Kept), work)
            }
        }
    }
}
