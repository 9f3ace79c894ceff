//! Locks rows one by one, and the named lock of an id.

use diesel::dsl::{auto_type, delete as delete_from, insert_into};
use diesel::mysql::Mysql;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use super::limits::LIMIT_HINT;
use super::safe_updates::{ANY_JOIN, ANY_JOIN_HINT};
use super::session_state::{
    IN_TRANSACTION, ISOLATION_LEVEL, InTransaction, SessionLevel, WRITER_UNKNOWN, WriterUnknown,
};
use crate::ObjectId;
use crate::engine::raw_sql::{push, statement};
use crate::schema::mysql::diesel_locks_objects::{self, dsl};

/// Locks the row if it exists; waits while another transaction holds it.
#[auto_type]
pub(in crate::engine::mysql) fn lock_row<'a>(id: &'a [u8]) -> _ {
    let session: (SessionLevel, InTransaction) = (SessionLevel, InTransaction);
    let unknown: WriterUnknown = WriterUnknown;
    diesel_locks_objects::table
        .select((session, unknown))
        .filter(dsl::id.eq(id))
        .for_update()
}

statement! {
    Mysql;
    /// `lock_row` without waiting: fails when another transaction holds the row. Raw for its hint, because on MySQL
    /// NOWAIT does not apply to a locked table.
    LockRowNow<'a> { id: &'a [u8] } -> ((BigInt, Nullable<BigInt>), BigInt),
    |self, out| {
        push!(out;
            "SELECT "; {LIMIT_HINT}; {ISOLATION_LEVEL}; ", "; {IN_TRANSACTION}; ", "; {WRITER_UNKNOWN};
            " FROM diesel_locks_objects WHERE id = ", Binary = self.id;
            " FOR UPDATE NOWAIT";
        );
    }
}

/// Fails if another transaction holds one of the rows, uncommitted ones included, and waits for none. Locks nothing: at
/// READ COMMITTED InnoDB releases at once what a statement has locked anew and its condition then excludes, and `kept` is
/// never larger than 1. What the transaction held before stays locked. Raw, as `LockRowNow`. Not cached: the number of ids
/// varies.
pub(in crate::engine::mysql) struct Probe<'a> {
    pub(in crate::engine::mysql) ids: &'a [ObjectId],
}

impl QueryId for Probe<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Probe<'_> {
    type SqlType = BigInt;
}

impl QueryFragment<Mysql> for Probe<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        // Not by the optimizer's choice, which may be to read, and lock, the whole table.
        push!(out;
            "SELECT "; {LIMIT_HINT}; "COUNT(*) FROM diesel_locks_objects FORCE INDEX (PRIMARY) WHERE kept > 1 AND id IN (";
        );
        for (position, id) in self.ids.iter().enumerate() {
            out.push_sql(if position == 0 { "" } else { ", " });
            out.push_bind_param::<Binary, _>(id.as_str().as_bytes())?;
        }
        out.push_sql(") FOR UPDATE NOWAIT");
        Ok(())
    }
}

#[auto_type]
pub(in crate::engine::mysql) fn insert<'a>(id: &'a [u8], kept: bool) -> _ {
    insert_into(diesel_locks_objects::table).values((dsl::id.eq(id), dsl::kept.eq(kept)))
}

#[auto_type]
pub(in crate::engine::mysql) fn delete<'a>(id: &'a [u8]) -> _ {
    delete_from(diesel_locks_objects::table.filter(dsl::id.eq(id)))
}

statement! {
    Mysql;
    /// Deletes rows that no transaction has locked, at most `limit`. Also the row of a transient lock whose DELETE
    /// failed, if its transaction was committed after all. By the key of each: a DELETE with a list of keys reads the
    /// whole table if the list covers most of it, and then waits for the rows that are locked.
    DeleteUnlocked { limit: i64 } -> Integer,
    |self, out| {
        push!(out;
            {ANY_JOIN}; "DELETE "; {ANY_JOIN_HINT};
            "object FROM (SELECT id FROM diesel_locks_objects FORCE INDEX (PRIMARY) LIMIT ", BigInt = &self.limit;
            " FOR UPDATE SKIP LOCKED) AS gone STRAIGHT_JOIN diesel_locks_objects AS object FORCE INDEX (PRIMARY) \
             ON object.id = gone.id";
        );
    }
}

/// The name of an object's named lock. GET_LOCK's names are those of the whole server, ignore case and have at most 64
/// characters, so the name is a digest of database and id. If two ids ever had the same digest, one would wait a moment
/// longer: the object lock is the row.
pub(in crate::engine::mysql) const NAMED_LOCK: &str =
    "CONCAT('diesel:', SHA2(CONCAT(CAST(COALESCE(DATABASE(), '') AS BINARY), '.', CAST(";
pub(in crate::engine::mysql) const NAMED_LOCK_END: &str = " AS BINARY)), 224))";

statement! {
    Mysql;
    /// Returns 1 if the named lock is acquired, 0 if another session held it until the time-out, and NULL if
    /// interrupted; and [`WRITER_UNKNOWN`].
    AcquireNamedLock<'a> { id: &'a [u8], seconds: i32 } -> (Nullable<BigInt>, BigInt),
    |self, out| {
        push!(out;
            "SELECT GET_LOCK("; {NAMED_LOCK}, Binary = self.id;
            {NAMED_LOCK_END}; ", ", Integer = &self.seconds;
            "), "; {WRITER_UNKNOWN};
        );
    }
}

statement! {
    Mysql;
    /// Has no effect if this session does not hold the named lock. Not a SELECT, which may return an error in place of
    /// its row.
    ReleaseNamedLock<'a> { id: &'a [u8] } -> Nullable<BigInt>,
    |self, out| {
        push!(out;
            "DO RELEASE_LOCK("; {NAMED_LOCK}, Binary = self.id;
            {NAMED_LOCK_END}; ")";
        );
    }
}
