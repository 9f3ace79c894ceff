//! Sequences on MySQL and MariaDB: one statement inserts the row or updates it.
//!
//! When a transaction that has inserted a row rolls back, all sessions that wait for the row get a shared lock on its
//! index record, none of them can insert, and all but one end with a deadlock. So a draw from a sequence whose row may
//! not be committed takes a named lock (`GET_LOCK`) first, and only its holder waits for the row.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{LazyLock, Mutex, PoisonError};

use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{BigInt, Binary};
use diesel::{ExpressionMethods, QueryDsl, QueryResult};

use super::execute::{MysqlError, Run};
use super::isolation::assert_in_transaction;
use super::sql::object_lock::{AcquireNamedLock, ReleaseNamedLock};
use super::sql::session_state::{WRITER_UNKNOWN, WriterUnknown};
use super::{active_isolation, lists, session, writers};
use crate::engine::raw_sql::{push, statement};
use crate::inspect::list_options::ListRequest;
use crate::link::Link;
use crate::poll::caught;
use crate::schema::mysql::diesel_locks_sequences;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::{Error, Sequence, transaction::depth, transaction::run};

/// One named lock for all sequences not seen before, because InnoDB's lock on the record of a removed row also locks
/// the gap beside it. Contains a NUL, which no object id does.
const NAMED_LOCK: &[u8] = b"sequences\0";

/// The longest wait for the named lock in seconds: InnoDB does not detect deadlocks that involve it.
const NAMED_LOCK_TIMEOUT: i32 = 5;

/// The error number of a value out of range: the sum exceeds BIGINT.
const OUT_OF_RANGE: i64 = 1690;

/// The error number of NULL in a column that is NOT NULL.
const NULL: i64 = 1048;

impl<C: Link<Backend = Mysql>> SequenceBackend<C> for Mysql {
    async fn draw(conn: &mut C, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let last = if is_seen(draw.sequence) {
            add(conn, draw).await?
        } else {
            let added = caught(add_with_named_lock(conn, draw)).await;
            depth::break_if_panicked(conn, added)?
        };
        // This draw was not the first: a committed transaction drew before, or this transaction did.
        if last != Some(draw.initial_last) {
            mark_seen(draw.sequence);
        }
        Ok(last)
    }

    async fn last(conn: &mut C, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = row(sequence).select(diesel_locks_sequences::last);
        Ok(last.get_optional(conn).await?)
    }

    async fn list_sequences(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, String, i64)>, Error> {
        lists::list_sequences(conn, request).await
    }
}

/// A sequence's key, which may be empty. MariaDB binds an empty text as NULL if `sql_mode` has `EMPTY_STRING_IS_NULL`, but not the
/// literal `x''`.
#[derive(Clone, Copy, Debug)]
struct Key<'a>(&'a [u8]);

impl QueryId for Key<'_> {
    type QueryId = Key<'static>;

    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Expression for Key<'_> {
    type SqlType = Binary;
}

impl<QS> AppearsOnTable<QS> for Key<'_> {}
impl<QS> SelectableExpression<QS> for Key<'_> {}

impl<GB> ValidGrouping<GB> for Key<'_> {
    type IsAggregate = is_aggregate::Never;
}

impl QueryFragment<Mysql> for Key<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        push!(out; "COALESCE(", Binary = self.0; ", x'')");
        Ok(())
    }
}

/// The row of the sequence.
#[diesel::dsl::auto_type]
fn row<'a>(sequence: &'a Sequence) -> _ {
    let name: &'a [u8] = sequence.name().as_bytes();
    let key: Key<'a> = Key(sequence.scope().as_bytes());
    diesel_locks_sequences::table.find((name, key))
}

statement! {
    Mysql;
    /// Inserts the row or adds to its number. Raw, because Diesel does not cache an upsert written in its DSL. Only
    /// MariaDB returns the number. `LAST_INSERT_ID(..)` could return it on MySQL, but belongs to the application.
    Add<'a> { draw: &'a DrawRequest<'a> } -> (BigInt, BigInt),
    |self, out| {
        let sequence = self.draw.sequence;
        push!(out;
            "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES (",
                Binary = sequence.name().as_bytes();
            // As for `Key`.
            ", COALESCE(", Binary = sequence.scope().as_bytes();
            ", x'')";
            // NULL, which is an error, outside a transaction, where the number could be drawn twice.
            ", /*M!100100 IF(@@in_transaction OR NOT @@autocommit, */", BigInt = &self.draw.initial_last;
            "/*M!100100 , NULL) */) ON DUPLICATE KEY UPDATE last = last + ", BigInt = &self.draw.count;
            " /*M!100500 RETURNING last, "; {WRITER_UNKNOWN}; " */";
        );
    }
}

/// Draws and returns the last number of the draw; `None` when too few numbers are left.
async fn add<C: Link<Backend = Mysql>>(
    conn: &mut C,
    draw: &DrawRequest<'_>,
) -> Result<Option<i64>, Error> {
    if C::EXECUTES_WITHOUT_ROWS {
        assert_ours_or_open(conn).await?;
    }
    let added = match (Add { draw }).get_result(conn).await {
        // diesel-async has executed the statement: on MySQL, which returns no rows.
        Err(failure) if failure.is_without_rows() && C::EXECUTES_WITHOUT_ROWS => {
            read_or_undo(conn, draw).await
        }
        // Diesel asks for the result's columns before it executes the statement, and there are none: always on MySQL,
        // and on MariaDB until the connection has executed the statement once.
        Err(failure) if failure.is_without_rows() => {
            assert_ours_or_open(conn).await?;
            match (Add { draw }).execute(conn).await {
                Ok(_) => read_or_undo(conn, draw).await,
                Err(failure) => Err(failure),
            }
        }
        added => added,
    };
    match added {
        Ok((last, unknown)) => {
            if let Err(error) = writers::ensure_one(conn, unknown == 1).await {
                undo_or_break(conn, draw, Some(last)).await;
                return Err(error);
            }
            Ok(Some(last))
        }
        Err(failure) if failure.number == Some(OUT_OF_RANGE) => Ok(None),
        Err(failure) if is_null_refused(&failure) => Err(run::ended(Some(failure.error))),
        Err(failure) => Err(failure.into()),
    }
}

/// Whether the number would have been drawn outside of a transaction. The error's number is asked of the server, which may not
/// answer any more: then Diesel's classification tells it.
fn is_null_refused(failure: &MysqlError) -> bool {
    failure.number == Some(NULL)
        || matches!(
            failure.error,
            diesel::result::Error::DatabaseError(DatabaseErrorKind::NotNullViolation, _)
        )
}

/// Fails when the server has no open transaction. Sends nothing in a transaction of this crate.
async fn assert_ours_or_open(conn: &mut impl Link<Backend = Mysql>) -> Result<(), Error> {
    match active_isolation::entered(conn) {
        Some(_) => Ok(()),
        None => assert_in_transaction(conn, None).await,
    }
}

/// The number drawn last, and [`WRITER_UNKNOWN`].
async fn read_last(
    conn: &mut impl Link<Backend = Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<(i64, i64), MysqlError> {
    // Not a plain read, which would take the snapshot for the transaction's later reads.
    row(draw.sequence)
        .select((diesel_locks_sequences::last, WriterUnknown))
        .for_update()
        .get_result(conn)
        .await
}

/// [`read_last`] after a draw, which an error takes back.
async fn read_or_undo(
    conn: &mut impl Link<Backend = Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<(i64, i64), MysqlError> {
    let read = read_last(conn, draw).await;
    if read.is_err() {
        undo_or_break(conn, draw, None).await;
    }
    read
}

/// Takes the draw back after an error, which the closure may ignore and commit: then there is no gap. If that fails,
/// the transaction can't be committed any more.
async fn undo_or_break(
    conn: &mut impl Link<Backend = Mysql>,
    draw: &DrawRequest<'_>,
    last: Option<i64>,
) {
    let undone = caught(undo_draw(conn, draw, last)).await;
    if let Err(error) = depth::break_if_panicked(conn, undone) {
        depth::mark_broken(conn);
        tracing::warn!(%error, "a number can't be taken back: the connection is marked as broken");
    }
}

/// Deletes the row if the number drawn last is known to be the first one, and otherwise subtracts what the draw has
/// added. So a row may stay that has the number before the first. The count of the upsert does not tell whether the row
/// is new: if the statement returns rows, MariaDB counts one row in both cases. Fails after the end of the transaction,
/// which has undone the draw: the subtraction would take back another one.
async fn undo_draw(
    conn: &mut impl Link<Backend = Mysql>,
    draw: &DrawRequest<'_>,
    last: Option<i64>,
) -> Result<(), Error> {
    assert_ours_or_open(conn).await?;
    let row = row(draw.sequence);
    if last == Some(draw.initial_last) {
        diesel::delete(row).execute(conn).await?;
        return Ok(());
    }
    let before = diesel_locks_sequences::last - draw.count;
    let update = diesel::update(row).set(diesel_locks_sequences::last.eq(before));
    update.execute(conn).await?;
    Ok(())
}

async fn add_with_named_lock(
    conn: &mut impl Link<Backend = Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<Option<i64>, Error> {
    let take = AcquireNamedLock {
        id: NAMED_LOCK,
        seconds: NAMED_LOCK_TIMEOUT,
    };
    let taken: Result<(Option<i64>, i64), MysqlError> = take.get_result(conn).await;
    let leave = match &taken {
        Ok((taken, _)) => *taken == Some(1),
        // It may have acquired the named lock.
        Err(failure) => failure.is_interrupted(),
    };
    let added = match taken {
        Ok((_, unknown)) => add_if_one_writer(conn, draw, unknown == 1).await,
        Err(failure) => Err(failure.into()),
    };
    if leave {
        let left = session::restore(conn, &ReleaseNamedLock { id: NAMED_LOCK }).await;
        // The draw's error takes precedence.
        if added.is_ok() {
            left?;
        }
    }
    added
}

async fn add_if_one_writer(
    conn: &mut impl Link<Backend = Mysql>,
    draw: &DrawRequest<'_>,
    unknown: bool,
) -> Result<Option<i64>, Error> {
    writers::ensure_one(conn, unknown).await?;
    add(conn, draw).await
}

/// Hashes of the sequences whose rows existed when this process drew from them. A guess: it is wrong for another
/// database, for a row deleted since, and when the transaction that inserted the row drew again and then rolled back.
/// Then a deadlock is possible.
static SEEN: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// The most entries of [`SEEN`], which is then cleared.
const MAX_SEEN: usize = 100_000;

fn is_seen(sequence: &Sequence) -> bool {
    let known = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    known.contains(&hash(sequence))
}

fn mark_seen(sequence: &Sequence) {
    let mut known = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MAX_SEEN {
        known.clear();
    }
    known.insert(hash(sequence));
}

fn hash(sequence: &Sequence) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one((sequence.name(), sequence.scope()))
}
