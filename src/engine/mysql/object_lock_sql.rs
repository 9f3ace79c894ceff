//! The statements for object locks on MySQL and MariaDB: for one row each, and messages of several for free objects.

use std::fmt::Write;

use diesel::dsl::{auto_type, delete as delete_from, insert_into};
use diesel::mysql::Mysql;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use crate::engine::dialect::{DbNow, Dialect};
use crate::engine::literal;
use crate::engine::mysql::sql::{
    ANY_JOIN, ANY_JOIN_HINT, ANY_SIZE, ANY_SIZE_HINT, BEGIN, BEGIN_AT_LEVEL, COMMIT,
    IN_TRANSACTION, ISOLATION_LEVEL, LIMIT_HINT, READ_COMMITTED, ROLLBACK, UNLESS_TABLE_LOCKED,
    WRITER_UNKNOWN,
};
use crate::engine::tables::Named;
use crate::engine::tables::diesel_locks_objects::{self, dsl};
use crate::engine::tables::diesel_locks_wanted as wanted;
use crate::link::raw_sql::{push, statement};
use crate::values::lock_request::Request;
use crate::{ObjectId, Wait};

statement! {
    Mysql;
    /// Reads the session's state if the object has a row and the session's isolation level is below this, and locks the row by this
    /// clause, if there is one. Raw for its hint, because on MySQL NOWAIT does not apply to a locked table.
    Row<'a> { id: &'a [u8], level: i64, clause: &'static str, waits: bool }
        -> ((BigInt, Nullable<BigInt>), BigInt), by text,
    |self, out| {
        let (hint, nowait) = if self.waits { ("", "") } else { (LIMIT_HINT, " NOWAIT") };
        let writes = if self.clause == IN_SHARE_MODE { AS_AN_UPDATE } else { "" };
        push!(out;
            "SELECT "; {hint}; {writes}; {ISOLATION_LEVEL}; ", "; {IN_TRANSACTION}; ", "; {WRITER_UNKNOWN};
            " FROM diesel_locks_objects WHERE id = ", Binary = self.id;
            " AND "; {ISOLATION_LEVEL}; " < ", BigInt = &self.level; {self.clause}; {nowait};
        );
    }
}

/// As [`sql::AS_AN_UPDATE`](crate::engine::mysql::sql::AS_AN_UPDATE), with the privileges that a lock needs. A server that takes no
/// writes refuses it, but not a shared lock, which would exclude nobody on the server that takes them.
const AS_AN_UPDATE: &str =
    "IFNULL((SELECT 0 FROM diesel_locks_objects WHERE FALSE FOR UPDATE), 0) + ";

/// The locking clause of a shared lock. MariaDB has no FOR SHARE, which the DSL sends.
pub(crate) const IN_SHARE_MODE: &str = " /*!80000 FOR SHARE *//*M!100100 LOCK IN SHARE MODE */";

pub(crate) const FOR_UPDATE: &str = " FOR UPDATE";

/// How long a mark is valid at most. One that is valid for longer was written before the clock was set back, and is ignored.
const LONGEST_WANTED_US: i64 = 1_000_000;

/// BEGIN that fails with [`MANY_ROWS`] if a session wants the exclusive lock of one of the objects. No SET, which would lock what it
/// reads.
pub(crate) fn begin_unless_wanted(shared: &[ObjectId]) -> String {
    format!(
        "{}; {UNLESS_TABLE_LOCKED}SELECT {LIMIT_HINT}(SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE EXISTS \
         (SELECT 1 FROM diesel_locks_wanted WHERE id IN ({}) AND until_us - {} BETWEEN 1 AND {LONGEST_WANTED_US}))",
        *BEGIN,
        literals(shared),
        Mysql::NOW
    )
}

/// How many of the objects another session wants exclusively.
#[auto_type]
pub(crate) fn count_wanted<'a>(ids: &'a [Named<'a>]) -> _ {
    let longest: i64 = LONGEST_WANTED_US;
    wanted::table
        .filter(wanted::id.eq_any(ids))
        .filter((wanted::until_us - DbNow).between(1_i64, longest))
        .count()
}

/// The number of the error of a subquery with two rows.
pub(crate) const MANY_ROWS: i64 = 1242;

/// Has sessions that hold nothing not acquire the shared locks of these objects, for so many microseconds, if readers alone hold
/// what the request is for. One message, because a client that stops after a part of it would keep the locks of rows.
pub(crate) fn want(request: &Request, micros: i64) -> String {
    let (all, exclusive) = (literals(&*request.ids), literals(request.exclusive()));
    let count = |variable: &str, ids: &str, clause: [&str; 2]| {
        format!(
            "; {UNLESS_TABLE_LOCKED}SELECT {LIMIT_HINT}COUNT(*) INTO @diesel_locks_{variable} FROM diesel_locks_objects \
             FORCE INDEX (PRIMARY) WHERE kept AND id IN ({ids}, x'00'){}{}",
            clause[0], clause[1]
        )
    };
    let free = count("free", &exclusive, [FOR_UPDATE, " SKIP LOCKED"]);
    let objects = count("objects", &exclusive, ["", ""]);
    let shareable = count("shareable", &all, [IN_SHARE_MODE, " SKIP LOCKED"]);
    let every = count("every", &all, ["", ""]);
    format!(
        // The marks first, as the statement that writes them locks them and their table.
        "{}; {UNLESS_TABLE_LOCKED}SELECT {LIMIT_HINT}COUNT(*) FROM diesel_locks_wanted FORCE INDEX (PRIMARY) \
         WHERE id IN ({exclusive}, x'00') FOR UPDATE NOWAIT\
         {free}{objects}{shareable}{every}; {ANY_SIZE}REPLACE INTO diesel_locks_wanted (id, until_us) SELECT {ANY_SIZE_HINT}id, {} + {micros} \
         FROM diesel_locks_objects FORCE INDEX (PRIMARY) WHERE id IN ({exclusive}) \
         AND @diesel_locks_free < @diesel_locks_objects AND @diesel_locks_shareable = @diesel_locks_every; {}",
        *BEGIN,
        Mysql::NOW,
        *COMMIT
    )
}

fn literals<'a>(ids: impl IntoIterator<Item = &'a ObjectId>) -> String {
    let ids: Vec<_> = ids.into_iter().map(literal_of).collect();
    ids.join(", ")
}

/// As [`sql::WITH_ID`](crate::engine::mysql::sql::WITH_ID), with the privileges that a lock needs.
const WITH_ID: &str =
    "/*M!100100 IFNULL((SELECT 0 FROM diesel_locks_objects WHERE id = x'00' FOR UPDATE), 0) + */ ";

statement! {
    Mysql;
    /// Fails if another transaction holds one of the rows, uncommitted ones included. Locks nothing: at READ COMMITTED InnoDB
    /// releases at once what a statement has locked anew and its condition then excludes, and `kept` is never larger than 2. What
    /// the transaction held before stays locked. Not cached: the number of ids varies.
    Probe<'a> { ids: &'a [&'a ObjectId], shared: bool } -> BigInt, by text,
    |self, out| {
        out.unsafe_to_cache_prepared();
        // Not by the optimizer's choice, which may be to read, and lock, the whole table.
        push!(out;
            {ANY_SIZE}; "SELECT "; {LIMIT_HINT}; {if self.shared { WITH_ID } else { "" }};
            "COUNT(*) FROM diesel_locks_objects FORCE INDEX (PRIMARY) WHERE kept > 2 AND id IN (";
        );
        for id in self.ids {
            push!(out; "", Binary = id.as_str().as_bytes(); ", ");
        }
        // No id of an object. A row that is found by one key alone is read, and stays locked, before the condition is evaluated.
        let mode = if self.shared { IN_SHARE_MODE } else { FOR_UPDATE };
        push!(out; "x'00')"; {mode}; " NOWAIT");
    }
}

#[auto_type]
pub(crate) fn insert<'a>(id: Named<'a>, kept: bool) -> _ {
    insert_into(diesel_locks_objects::table).values((dsl::id.eq(id), dsl::kept.eq(kept)))
}

#[auto_type]
pub(crate) fn delete<'a>(id: Named<'a>) -> _ {
    delete_from(diesel_locks_objects::table.filter(dsl::id.eq(id)))
}

statement! {
    Mysql;
    /// Limits the wait of an INSERT for a row that another session has inserted: MariaDB does not wait, MySQL for 1 s. SET STATEMENT
    /// can't be added to a statement of the DSL, and MySQL has no hint for it.
    LimitInsert {} -> Integer,
    |self| {
        "SET @diesel_locks_row_wait = @@SESSION.innodb_lock_wait_timeout, \
         SESSION innodb_lock_wait_timeout = /*!80000 1 *//*M!100100 0 */"
    }

    /// Has no effect unless [`LimitInsert`] has run.
    RestoreInsert {} -> Integer,
    |self| {
        "SET SESSION innodb_lock_wait_timeout = \
         CAST(COALESCE(@diesel_locks_row_wait, @@SESSION.innodb_lock_wait_timeout) AS UNSIGNED), \
         @diesel_locks_row_wait = NULL"
    }

    /// Deletes rows that no transaction has locked, at most `limit`. Also the row of a transient lock whose DELETE
    /// failed, if its transaction was committed after all. By the key of each: a DELETE with a list of keys reads the
    /// whole table if the list covers most of it, and then waits for the rows that are locked.
    DeleteUnlocked { limit: i64 } -> Integer,
    |self| {
        {ANY_JOIN}; "DELETE "; {ANY_JOIN_HINT};
        "object FROM (SELECT id FROM diesel_locks_objects FORCE INDEX (PRIMARY) LIMIT ", BigInt = &self.limit;
        " FOR UPDATE SKIP LOCKED) AS gone STRAIGHT_JOIN diesel_locks_objects AS object FORCE INDEX (PRIMARY) \
         ON object.id = gone.id";
    }

    /// Deletes the marks that have expired. The limit, because a session with `sql_safe_updates` refuses it without one.
    DeleteUnwanted {} -> Integer,
    |self| { "DELETE FROM diesel_locks_wanted WHERE until_us <= "; {Mysql::NOW}; " LIMIT 100000" }
}

/// The name of an object's named lock: a digest of database and id, the same whatever the session's collation.
pub(crate) const NAMED_LOCK: &str =
    "CONCAT('diesel:', SHA2(CONCAT(CAST(COALESCE(DATABASE(), '') AS BINARY), x'2e', CAST(";
pub(crate) const NAMED_LOCK_END: &str = " AS BINARY)), 224))";

statement! {
    Mysql;
    /// 1 if acquired, 0 if another session held the named lock until the time-out, NULL if interrupted; and [`WRITER_UNKNOWN`].
    AcquireNamedLock<'a> { id: &'a [u8], seconds: i32 } -> (Nullable<BigInt>, BigInt),
    |self| {
        "SELECT GET_LOCK("; {NAMED_LOCK}, Binary = self.id;
        {NAMED_LOCK_END}; ", ", Integer = &self.seconds;
        "), "; {WRITER_UNKNOWN};
    }

    /// Has no effect if this session does not hold it. Not a SELECT, which may return an error in place of its row.
    ReleaseNamedLock<'a> { id: &'a [u8] } -> Nullable<BigInt>,
    |self| {
        "DO RELEASE_LOCK("; {NAMED_LOCK}, Binary = self.id;
        {NAMED_LOCK_END}; ")";
    }
}

/// The most objects that one message locks. An id has up to 1020 bytes and is in the message five times, at
/// worst in hexadecimal digits: 1 MB in total. MariaDB's default for `max_allowed_packet` is 16 MB.
pub(crate) const LOCK_BATCH: usize = 100;

/// BEGIN and transient locks on free objects in one message, which takes one round trip like BEGIN alone. It fails when
/// an object is not free; [`undo`] reverts what it has done until then. In a transaction that Diesel does not know of its
/// first statement fails, and nothing is to be reverted.
pub(crate) fn begin_and_acquire(request: &Request) -> String {
    let set_limit = if request.wait == Wait::Forever {
        ""
    } else {
        // More time than the message takes; a wait may exceed its limit by it.
        "SET @diesel_locks_named_lock = NULL /*!80000 , \
         @diesel_locks_limit = @@SESSION.max_execution_time, SESSION max_execution_time = 20 */; "
    };
    let (acquire, restore) = (acquire_free(&request.ids, ""), restore_limit(request));
    format!(
        "{READ_COMMITTED}{set_limit}{}{acquire}{restore}",
        *BEGIN_AT_LEVEL
    )
}

pub(crate) fn undo(request: &Request) -> String {
    let (release, restore) = (release_named_locks(&request.ids), restore_limit(request));
    format!("{}{release}{restore}", *ROLLBACK)
}

/// The statements' time is limited, because on MySQL NOWAIT applies to rows, but a statement waits for a locked table.
fn restore_limit(request: &Request) -> &'static str {
    if request.wait == Wait::Forever {
        return "";
    }
    "; SET @diesel_locks_named_lock = NULL /*!80000 , SESSION max_execution_time = \
     CAST(COALESCE(@diesel_locks_limit, @@SESSION.max_execution_time) AS UNSIGNED), \
     @diesel_locks_limit = NULL */"
}

/// [`begin_and_acquire`] in an open transaction.
pub(crate) fn acquire_in_savepoint(ids: &[ObjectId], wait: Wait) -> String {
    let hint = if wait == Wait::Forever {
        ""
    } else {
        LIMIT_HINT
    };
    let acquire = acquire_free(ids, hint);
    format!("SAVEPOINT diesel_locks{acquire}; RELEASE SAVEPOINT diesel_locks")
}

/// Reverts [`acquire_in_savepoint`], whichever of its statements has failed. If the transaction has ended, this fails
/// after it has released the named locks.
pub(crate) fn undo_savepoint(ids: &[ObjectId]) -> String {
    let release = release_named_locks(ids);
    format!("DO 0{release}; ROLLBACK TO SAVEPOINT diesel_locks; RELEASE SAVEPOINT diesel_locks")
}

/// `hint` is for the first statement that accesses the table, which is the one that may wait for a locked table.
fn acquire_free(ids: &[ObjectId], hint: &str) -> String {
    let mut sql = String::new();
    for id in ids {
        let (id, named_lock) = (literal_of(id), named_lock_of(id));
        let _ = write!(
            sql,
            // The subquery returns two rows, which is an error, if another session holds the named lock or the session
            // does not know yet that there is one writer.
            "; SET @diesel_locks_named_lock = \
             (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE COALESCE(GET_LOCK({named_lock}, 0), 0) = 0 OR {WRITER_UNKNOWN})\
             ; SELECT {hint}kept FROM diesel_locks_objects WHERE id = {id} FOR UPDATE NOWAIT\
             ; INSERT IGNORE INTO diesel_locks_objects (id, kept) VALUES ({id}, FALSE)\
             ; DELETE FROM diesel_locks_objects WHERE id = {id} AND NOT kept\
             ; DO RELEASE_LOCK({named_lock})"
        );
    }
    sql
}

fn release_named_locks(ids: &[ObjectId]) -> String {
    let mut sql = String::new();
    for id in ids {
        let _ = write!(sql, "; DO RELEASE_LOCK({})", named_lock_of(id));
    }
    sql
}

fn named_lock_of(id: &ObjectId) -> String {
    format!("{NAMED_LOCK}{}{NAMED_LOCK_END}", literal_of(id))
}

pub(crate) fn literal_of(id: &ObjectId) -> String {
    let mut literal = String::new();
    literal::push_for_mysql(&mut literal, id.as_str());
    literal
}
