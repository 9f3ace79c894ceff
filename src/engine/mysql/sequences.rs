//! Sequences on MySQL and MariaDB: one statement inserts the row or updates it.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{LazyLock, Mutex};

use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{BigInt, Binary};
use diesel::{ExpressionMethods, QueryDsl, QueryResult};

use crate::engine::ending;
use crate::engine::mysql::execute::{self, MysqlError};
use crate::engine::mysql::object_lock_sql::{AcquireNamedLock, ReleaseNamedLock};
use crate::engine::mysql::session::{self, assert_in_transaction};
use crate::engine::mysql::sql::{WRITER_UNKNOWN, WriterUnknown};
use crate::engine::mysql::{active_isolation, writers};
use crate::engine::operations::DrawRequest;
use crate::engine::tables::{Name, Named, diesel_locks_sequences};
use crate::link::raw_sql::{push, statement};
use crate::link::{On, depth};
use crate::rt::{caught, lock};
use crate::{Error, Sequence};

/// One named lock for all sequences not seen before: see "Sequences" in DESIGN.md. Contains a NUL, which no object id does.
const NAMED_LOCK: &[u8] = b"sequences\0";

/// The longest wait for the named lock in seconds: InnoDB does not detect deadlocks that involve it.
const NAMED_LOCK_TIMEOUT: i32 = 5;

/// The error number of a value out of range: the sum exceeds BIGINT.
const OUT_OF_RANGE: i64 = 1690;

/// The error number of NULL in a column that is NOT NULL.
const NULL: i64 = 1048;

pub(crate) async fn draw(
    conn: &mut impl On<Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<Option<i64>, Error> {
    let last = if is_seen(draw.sequence) {
        add(conn, draw).await?
    } else {
        let added = caught(add_with_named_lock(conn, draw)).await;
        depth::break_if_panicked(conn.status(), added)?
    };
    // This draw was not the first: a committed transaction drew before, or this transaction did.
    if last != Some(draw.initial_last) {
        mark_seen(draw.sequence);
    }
    Ok(last)
}

pub(crate) async fn last(
    conn: &mut impl On<Mysql>,
    sequence: &Sequence,
) -> Result<Option<i64>, Error> {
    let last = row(sequence).select(diesel_locks_sequences::last);
    Ok(execute::get_optional(conn, last).await?)
}

/// A sequence's key, which may be empty. MariaDB binds an empty text as NULL if `sql_mode` has `EMPTY_STRING_IS_NULL`, but not
/// the literal `x''`.
#[derive(Clone, Copy, Debug)]
struct Key<'a>(&'a [u8]);

impl QueryId for Key<'_> {
    type QueryId = Key<'static>;

    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Expression for Key<'_> {
    type SqlType = Name;
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

#[diesel::dsl::auto_type]
fn row<'a>(sequence: &'a Sequence) -> _ {
    let name: Named<'a> = Named(sequence.name());
    let key: Key<'a> = Key(sequence.scope().as_bytes());
    diesel_locks_sequences::table.find((name, key))
}

statement! {
    Mysql;
    /// Inserts the row or adds to its number. Raw, because Diesel does not cache an upsert written in its DSL. Only MariaDB
    /// returns the number.
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

async fn add<C: On<Mysql>>(conn: &mut C, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
    if C::EXECUTES_WITHOUT_ROWS {
        assert_ours_or_open(conn).await?;
    }
    let added = match execute::get_result(conn, Add { draw }).await {
        // diesel-async has executed the statement: on MySQL, which returns no rows.
        Err(failure) if failure.is_without_rows() && C::EXECUTES_WITHOUT_ROWS => {
            read_or_undo(conn, draw).await
        }
        // Diesel asks for the result's columns before it executes the statement, and there are none: always on MySQL,
        // and on MariaDB until the connection has executed the statement once.
        Err(failure) if failure.is_without_rows() => {
            assert_ours_or_open(conn).await?;
            match execute::execute(conn, Add { draw }).await {
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
        Err(failure) if is_null_refused(&failure) => Err(ending::ended(Some(failure.error))),
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
async fn assert_ours_or_open(conn: &mut impl On<Mysql>) -> Result<(), Error> {
    match active_isolation::entered(conn) {
        Some(_) => Ok(()),
        None => assert_in_transaction(conn, None).await,
    }
}

/// The number drawn last, and [`WRITER_UNKNOWN`], after a draw, which an error takes back.
async fn read_or_undo(
    conn: &mut impl On<Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<(i64, i64), MysqlError> {
    // Not a plain read, which would take the snapshot for the transaction's later reads.
    let last = row(draw.sequence).select((diesel_locks_sequences::last, WriterUnknown {}));
    let read = execute::get_result(conn, last.for_update()).await;
    if read.is_err() {
        undo_or_break(conn, draw, None).await;
    }
    read
}

/// Takes the draw back after an error, which the closure may ignore and commit: then there is no gap. If that fails,
/// the transaction can't be committed any more.
async fn undo_or_break(conn: &mut impl On<Mysql>, draw: &DrawRequest<'_>, last: Option<i64>) {
    let undone = caught(undo_draw(conn, draw, last)).await;
    if let Err(error) = depth::break_if_panicked(conn.status(), undone) {
        depth::mark_broken(conn.status());
        tracing::warn!(%error, "a number can't be taken back: the connection is marked as broken");
    }
}

/// Deletes the row if the number drawn last is known to be the first one, and otherwise subtracts what the draw has
/// added. So a row may stay that has the number before the first. The count of the upsert does not tell whether the row
/// is new: if the statement returns rows, MariaDB counts one row in both cases. Fails after the end of the transaction,
/// which has undone the draw: the subtraction would take back another one.
async fn undo_draw(
    conn: &mut impl On<Mysql>,
    draw: &DrawRequest<'_>,
    last: Option<i64>,
) -> Result<(), Error> {
    assert_ours_or_open(conn).await?;
    let row = row(draw.sequence);
    if last == Some(draw.initial_last) {
        execute::execute(conn, diesel::delete(row)).await?;
        return Ok(());
    }
    let before = diesel_locks_sequences::last - draw.count;
    let update = diesel::update(row).set(diesel_locks_sequences::last.eq(before));
    execute::execute(conn, update).await?;
    Ok(())
}

async fn add_with_named_lock(
    conn: &mut impl On<Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<Option<i64>, Error> {
    let take = AcquireNamedLock {
        id: NAMED_LOCK,
        seconds: NAMED_LOCK_TIMEOUT,
    };
    let taken: Result<(Option<i64>, i64), MysqlError> = execute::get_result(conn, take).await;
    let leave = match &taken {
        Ok((taken, _)) => *taken == Some(1),
        // It may have acquired the named lock.
        Err(failure) => failure.is_interrupted(),
    };
    let added = match taken {
        Ok((_, unknown)) => match writers::ensure_one(conn, unknown == 1).await {
            Ok(()) => add(conn, draw).await,
            Err(error) => Err(error),
        },
        Err(failure) => Err(failure.into()),
    };
    if leave {
        let left = session::restore(conn, &ReleaseNamedLock { id: NAMED_LOCK }).await;
        if added.is_ok() {
            left?;
        }
    }
    added
}

/// Hashes of the sequences whose rows existed when this process drew from them. A guess: it is wrong for another
/// database, for a row deleted since, and when the transaction that inserted the row drew again and then rolled back.
/// Then a deadlock is possible.
static SEEN: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// The most entries of [`SEEN`], which is then cleared.
const MAX_SEEN: usize = 100_000;

fn is_seen(sequence: &Sequence) -> bool {
    let known = lock(&SEEN);
    known.contains(&hash(sequence))
}

fn mark_seen(sequence: &Sequence) {
    let mut known = lock(&SEEN);
    if known.len() >= MAX_SEEN {
        known.clear();
    }
    known.insert(hash(sequence));
}

fn hash(sequence: &Sequence) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one((sequence.name(), sequence.scope()))
}
