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
}

statements! {
    InsertRow = "INSERT INTO businessobjectlock (uuid, id, locked_ts) VALUES ($1, $2, $n)";
    DeleteRow = "DELETE FROM businessobjectlock WHERE uuid = $1";

    LockInTransaction = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    // Seconds that are longer than any wait of a benchmark.
    GetLock = "SELECT GET_LOCK($1, 600)";
    ReleaseLock = "SELECT RELEASE_LOCK($1)";
}

/// The table of the 2010 baseline: a table like any other, with two indexes.
pub(crate) fn create_table(conn: &mut impl Backend) -> QueryResult<()> {
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
    /// SQLite has no advisory locks.
    pub(crate) fn exists_on(self, engine: Engine) -> bool {
        self != Self::Advisory || engine != Engine::Sqlite
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
