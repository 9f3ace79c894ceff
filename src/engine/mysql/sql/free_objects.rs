//! Locks free objects in one message of several statements.

use std::fmt::Write;

use super::limits::LIMIT_HINT;
use super::object_lock::{NAMED_LOCK, NAMED_LOCK_END};
use super::session_state::WRITER_UNKNOWN;
use super::{BEGIN_MARKED_AT_LEVEL, READ_COMMITTED, ROLLBACK};
use crate::engine::literal;
use crate::object_lock::acquire::Request;
use crate::{ObjectId, Wait};

/// The most objects that one message locks. An id has up to 1020 bytes and is in the message five times, at
/// worst in hexadecimal digits: 1 MB in total. MariaDB's default for `max_allowed_packet` is 16 MB.
pub(in crate::engine::mysql) const LOCK_BATCH: usize = 100;

/// BEGIN and transient locks on free objects in one message, which takes one round trip like BEGIN alone. It fails when
/// an object is not free; [`undo`] reverts what it has done until then. In a transaction that Diesel does not know of its
/// first statement fails, and nothing is to be reverted.
pub(in crate::engine::mysql) fn begin_and_acquire(request: &Request) -> String {
    let mut sql = READ_COMMITTED.to_owned();
    if is_limited(request) {
        // More time than the message takes; a wait may exceed its limit by it.
        sql.push_str(
            "SET @diesel_locks_named_lock = NULL /*!80000 , \
             @diesel_locks_limit = @@SESSION.max_execution_time, SESSION max_execution_time = 20 */; ",
        );
    }
    sql.push_str(BEGIN_MARKED_AT_LEVEL);
    push_acquire_free(&mut sql, &request.ids, "");
    push_restore_limit(&mut sql, request);
    sql
}

/// Reverts [`begin_and_acquire`], whichever of its statements has failed.
pub(in crate::engine::mysql) fn undo(request: &Request) -> String {
    let mut sql = ROLLBACK.to_owned();
    push_release_named_locks(&mut sql, &request.ids);
    push_restore_limit(&mut sql, request);
    sql
}

/// Whether to limit the statements' time: on MySQL, NOWAIT applies to rows, but a statement waits for a locked table.
fn is_limited(request: &Request) -> bool {
    request.wait != Wait::Forever
}

fn push_restore_limit(sql: &mut String, request: &Request) {
    if is_limited(request) {
        sql.push_str(
            "; SET @diesel_locks_named_lock = NULL /*!80000 , SESSION max_execution_time = \
             CAST(COALESCE(@diesel_locks_limit, @@SESSION.max_execution_time) AS UNSIGNED), \
             @diesel_locks_limit = NULL */",
        );
    }
}

/// [`begin_and_acquire`] in an open transaction.
pub(in crate::engine::mysql) fn acquire_in_savepoint(ids: &[ObjectId], wait: Wait) -> String {
    let mut sql = "SAVEPOINT diesel_locks".to_owned();
    let hint = if wait == Wait::Forever {
        ""
    } else {
        LIMIT_HINT
    };
    push_acquire_free(&mut sql, ids, hint);
    sql.push_str("; RELEASE SAVEPOINT diesel_locks");
    sql
}

/// Reverts [`acquire_in_savepoint`], whichever of its statements has failed. If the transaction has ended, this fails
/// after it has released the named locks.
pub(in crate::engine::mysql) fn undo_savepoint(ids: &[ObjectId]) -> String {
    let mut sql = "DO 0".to_owned();
    push_release_named_locks(&mut sql, ids);
    sql.push_str("; ROLLBACK TO SAVEPOINT diesel_locks; RELEASE SAVEPOINT diesel_locks");
    sql
}

/// `hint` is for the first statement that accesses the table, which is the one that may wait for a locked table.
fn push_acquire_free(sql: &mut String, ids: &[ObjectId], hint: &str) {
    for id in ids {
        let named_lock = named_lock_of(id);
        let mut literal = String::new();
        literal::push_for_mysql(&mut literal, id.as_str());
        let _ = write!(
            sql,
            // The subquery returns two rows, which is an error, if another session holds the named lock or the session
            // does not know yet that there is one writer.
            "; SET @diesel_locks_named_lock = \
             (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE COALESCE(GET_LOCK({named_lock}, 0), 0) = 0 OR {WRITER_UNKNOWN})\
             ; SELECT {hint}kept FROM diesel_locks_objects WHERE id = {literal} FOR UPDATE NOWAIT\
             ; INSERT IGNORE INTO diesel_locks_objects (id, kept) VALUES ({literal}, FALSE)\
             ; DELETE FROM diesel_locks_objects WHERE id = {literal} AND NOT kept\
             ; DO RELEASE_LOCK({named_lock})"
        );
    }
}

fn push_release_named_locks(sql: &mut String, ids: &[ObjectId]) {
    for id in ids {
        let _ = write!(sql, "; DO RELEASE_LOCK({})", named_lock_of(id));
    }
}

/// The SQL of [`NAMED_LOCK`] for an id.
fn named_lock_of(id: &ObjectId) -> String {
    let mut sql = NAMED_LOCK.to_owned();
    literal::push_for_mysql(&mut sql, id.as_str());
    sql.push_str(NAMED_LOCK_END);
    sql
}
