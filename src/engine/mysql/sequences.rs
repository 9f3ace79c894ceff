//! Sequences on MySQL and MariaDB: one statement makes the row or goes on from it.
//!
//! When the transaction that made a row rolls back, those who wait for the row all get InnoDB's lock on
//! its place, none can make the row, and all but one end as victims of a deadlock. So who does not know
//! that the row is there to stay takes a named lock (`GET_LOCK`), and waits for the row alone.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{LazyLock, Mutex, PoisonError};

use diesel::mysql::{Mysql, MysqlConnection};
use diesel::sql_types::{BigInt, Binary};
use diesel::{ExpressionMethods, QueryDsl};

use super::execute::{MysqlError, Run};
use super::writers::UNKNOWN;
use super::{active_isolation, assert_in_transaction, session, sql, writers};
use crate::engine::raw_sql::{push, statement};
use crate::engine::sequence_queries::last_drawn;
use crate::schema::mysql::diesel_locks_sequences;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::{Error, Sequence, transaction::depth, transaction::run};

/// One named lock for all sequences that were not seen before: InnoDB's lock on the place of a row that is gone is one
/// on the places beside it. No object's id has a NUL.
const NAMED_LOCK: &[u8] = b"sequences\0";

/// The seconds of the wait for the named lock. It is not a row's lock, so that InnoDB sees no cycle through it.
const NAMED_LOCK_TIMEOUT: i32 = 5;

/// A value is out of range: the sum is larger than a BIGINT.
const OUT_OF_RANGE: i64 = 1690;

/// NULL for a column that has none.
const NULL: i64 = 1048;

impl SequenceBackend for MysqlConnection {
    fn draw(conn: &mut Self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let last = if is_seen(draw.sequence) {
            add(conn, draw)?
        } else {
            depth::break_on_panic(conn, |conn| add_with_named_lock(conn, draw))?
        };
        // Not that of a very first draw: so somebody drew before and committed, or this transaction did.
        if last != Some(draw.initial_last) {
            mark_seen(draw.sequence);
        }
        Ok(last)
    }

    fn last(conn: &mut Self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = last_drawn(sequence.name().as_bytes(), sequence.scope().as_bytes());
        Ok(last.get_optional(conn)?)
    }
}

last_drawn!(mysql, [u8]);

statement! {
    Mysql, MysqlConnection;
    /// Makes the row or adds to it. Raw: Diesel prepares an upsert of the DSL's anew each time. Only
    /// MariaDB returns the number. Not by `LAST_INSERT_ID(..)`, which is the application's.
    Add<'a> { draw: &'a DrawRequest<'a> } -> (BigInt, BigInt),
    |self, out| {
        let sequence = self.draw.sequence;
        push!(out;
            "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES (",
                Binary = sequence.name().as_bytes();
            ", ", Binary = sequence.scope().as_bytes();
            // NULL is an error: outside a transaction the number would be another's too.
            ", /*M!100100 IF(@@in_transaction OR NOT @@autocommit, */", BigInt = &self.draw.initial_last;
            "/*M!100100 , NULL) */) ON DUPLICATE KEY UPDATE last = last + ", BigInt = &self.draw.count;
            " /*M!100500 RETURNING last, "; {UNKNOWN}; " */";
        );
    }
}

/// `None` when too few are left.
fn add(conn: &mut MysqlConnection, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
    let added = match (Add { draw }).get_result(conn) {
        // A statement without rows, as Diesel notices before it sends it: this is MySQL, or MariaDB
        // before the connection's first draw.
        Err(failure) if failure.is_without_rows() => {
            if active_isolation::entered(conn).is_none() {
                assert_in_transaction(conn, None)?;
            }
            add_and_read(conn, draw)
        }
        added => added,
    };
    match added {
        Ok((last, unknown)) => {
            if let Err(error) = writers::ensure_one(conn, unknown == 1) {
                undo_draw(conn, draw, last)?;
                return Err(error);
            }
            Ok(Some(last))
        }
        Err(failure) if failure.number == Some(OUT_OF_RANGE) => Ok(None),
        Err(failure) if failure.number == Some(NULL) => Err(run::ended(Some(failure.error))),
        Err(failure) => Err(failure.into()),
    }
}

/// The number drawn last, and [`UNKNOWN`].
fn add_and_read(
    conn: &mut MysqlConnection,
    draw: &DrawRequest<'_>,
) -> Result<(i64, i64), MysqlError> {
    Add { draw }.execute(conn)?;
    let (name, scope) = (draw.sequence.name(), draw.sequence.scope());
    // A plain read would begin the snapshot of the transaction's later reads.
    let last = last_drawn(name.as_bytes(), scope.as_bytes()).for_update();
    last.select((diesel_locks_sequences::last, sql::WriterUnknown))
        .get_result(conn)
}

/// A closure may ignore the error and commit: without a gap.
fn undo_draw(
    conn: &mut MysqlConnection,
    draw: &DrawRequest<'_>,
    last: i64,
) -> Result<usize, MysqlError> {
    let (name, scope) = (draw.sequence.name(), draw.sequence.scope());
    let row = diesel_locks_sequences::table.find((name.as_bytes(), scope.as_bytes()));
    if last == draw.initial_last {
        return diesel::delete(row).execute(conn);
    }
    let before = diesel_locks_sequences::last - draw.count;
    diesel::update(row)
        .set(diesel_locks_sequences::last.eq(before))
        .execute(conn)
}

fn add_with_named_lock(
    conn: &mut MysqlConnection,
    draw: &DrawRequest<'_>,
) -> Result<Option<i64>, Error> {
    let take = sql::AcquireNamedLock {
        id: NAMED_LOCK,
        seconds: NAMED_LOCK_TIMEOUT,
    };
    let taken: Result<(Option<i64>, i64), MysqlError> = take.get_result(conn);
    let leave = match &taken {
        Ok((taken, _)) => *taken == Some(1),
        // It may have acquired the named lock.
        Err(failure) => failure.is_interrupted(),
    };
    let added = taken.map_err(Error::from).and_then(|(_, unknown)| {
        writers::ensure_one(conn, unknown == 1)?;
        add(conn, draw)
    });
    if leave {
        let left = session::restore(conn, &sql::ReleaseNamedLock { id: NAMED_LOCK });
        // The draw's error says more.
        if added.is_ok() {
            left?;
        }
    }
    added
}

/// Sequences whose rows were there when this process drew from them, as hashes. A guess, which is wrong
/// for another database, for a row that was deleted, and when who made the row drew once more and rolled
/// back: Diesel does not tell whether it was in one transaction. Then a deadlock is possible.
static SEEN: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Beyond that it starts anew.
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
