//! What is sent to PostgreSQL.

use std::fmt::Write;

use diesel::dsl::{auto_type, case_when, delete as delete_from, select, sql};
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Text};

use crate::object_lock::acquire::Request;
use crate::schema::postgres::diesel_locks_objects::{self, dsl};
use crate::transaction::options::Access;
use crate::{ObjectId, TransactionOptions, Wait};

#[diesel::declare_sql_function]
extern "SQL" {
    /// `NULL`, or the isolation level that is in the way; see the migration.
    fn diesel_locks_acquire_one(object_id: Text, keep: Bool) -> Nullable<Text>;
    /// The same for several.
    fn diesel_locks_acquire(object_ids: Array<Text>, keep: Bool) -> Nullable<Text>;
    /// `locked`, `held`, or the isolation level that is in the way; see the migration.
    fn diesel_locks_try_acquire(object_ids: Array<Text>, keep: Bool) -> Text;
    fn version() -> Text;
    fn pg_advisory_xact_lock(key: BigInt);
    fn pg_try_advisory_xact_lock(class: Integer, key: Integer) -> Bool;
}

/// "diesel-l", so that no application takes the same number by chance.
const MIGRATIONS_KEY: i64 = i64::from_be_bytes(*b"diesel-l");

/// The first number of each kept row's advisory lock: the table, by its object identifier, as in the migration.
const ADVISORY_CLASS: &str = "'diesel_locks_objects'::regclass::integer";

/// Milliseconds within which what is free is had when the time is up: far more than it takes. Without it a lock that
/// changes hands faster than [`nowait_lock_timeout_ms`] would be waited for on and on.
fn grace_ms(ids: usize) -> i32 {
    200 + i32::try_from(ids / 5).unwrap_or(i32::MAX / 2)
}

/// Milliseconds of a lock wait that is none: as in `diesel_locks_try_acquire`, and less with many ids, each
/// of which may be waited for.
fn nowait_lock_timeout_ms(ids: usize) -> usize {
    (200 / ids.max(1)).clamp(1, 10)
}

/// With BEGIN: a setting that ends with the transaction, for [`COMMIT`] to know it.
macro_rules! mark {
    () => {
        "SET LOCAL diesel_locks.started = 1"
    };
}

/// An error that names [`MARK`] in a transaction that is not ours.
macro_rules! assert_marked {
    () => {
        "SELECT CASE current_setting('diesel_locks.started') WHEN '1' THEN '1' ELSE 'diesel_locks.started' END::int"
    };
}

/// READ COMMITTED whatever the session's default: at a higher level the closure's reads would have the
/// snapshot of the moment before the wait.
pub(super) const BEGIN: &str = concat!("BEGIN ISOLATION LEVEL READ COMMITTED; ", mark!());

/// COMMIT alone would roll back a transaction in which a statement has failed, and call it a success; and it
/// would commit another transaction than ours. In both the first statement fails, and COMMIT is not run.
///
/// The setting is empty in another transaction of a session that has had one of ours: then what can't be cast names
/// [`MARK`].
pub(super) const COMMIT: &str = concat!(assert_marked!(), "; COMMIT");

/// ROLLBACK is not run in a transaction that is not ours, or has failed.
pub(super) const ROLLBACK: &str = concat!(assert_marked!(), "; ROLLBACK");

/// What the error of [`COMMIT`] names, in any language, in a transaction that is not ours.
pub(super) const MARK: &str = "diesel_locks.started";

pub(super) fn begin(transaction: &TransactionOptions) -> String {
    let mut sql = String::from("BEGIN");
    if let Some(level) = transaction.isolation {
        sql.push_str(" ISOLATION LEVEL ");
        sql.push_str(level.sql());
    }
    match transaction.access {
        Some(Access::ReadOnly) => sql.push_str(" READ ONLY"),
        Some(Access::ReadWrite) => sql.push_str(" READ WRITE"),
        None => {}
    }
    if transaction.deferrable {
        sql.push_str(" DEFERRABLE");
    }
    sql.push_str("; ");
    sql.push_str(mark!());
    sql
}

pub(super) const ROLLBACK_TO_SAVEPOINT: &str =
    "ROLLBACK TO SAVEPOINT diesel_locks; RELEASE SAVEPOINT diesel_locks";

pub(super) fn ids(request: &Request) -> Vec<&str> {
    request.ids.iter().map(ObjectId::as_str).collect()
}

#[auto_type]
pub(super) fn acquire_one<'a>(id: &'a str, keep: bool) -> _ {
    select(diesel_locks_acquire_one(id, keep))
}

#[auto_type]
pub(super) fn acquire<'a>(ids: Vec<&'a str>, keep: bool) -> _ {
    select(diesel_locks_acquire(ids, keep))
}

#[auto_type]
pub(super) fn try_acquire<'a>(ids: Vec<&'a str>, keep: bool) -> _ {
    select(diesel_locks_try_acquire(ids, keep))
}

/// Kept rows that nobody has locked, locked now.
///
/// CASE, because the planner is free to call the function before it evaluates a condition beside it. There
/// is no ORDER BY: LIMIT ends the scan, so that no more rows are locked than are returned.
#[auto_type]
pub(super) fn free_kept(limit: i64) -> _ {
    let class: SqlLiteral<Integer> = sql(ADVISORY_CLASS);
    let lock: pg_try_advisory_xact_lock<SqlLiteral<Integer>, dsl::advisory_key> =
        pg_try_advisory_xact_lock(class, dsl::advisory_key);
    diesel_locks_objects::table
        .select((dsl::id, dsl::advisory_key))
        .filter(case_when(dsl::kept, lock).otherwise(false))
        .limit(limit)
}

/// Not by id alone: another may have purged the row before we locked its key, and somebody made a new
/// row since, which has another key.
#[auto_type]
pub(super) fn delete<'a>(ids: &'a [String], keys: &'a [i32]) -> _ {
    delete_from(
        diesel_locks_objects::table
            .filter(dsl::id.eq_any(ids))
            .filter(dsl::advisory_key.eq_any(keys)),
    )
}

#[auto_type]
pub(super) fn server_version() -> _ {
    select(version())
}

#[auto_type]
pub(super) fn lock_migrations() -> _ {
    let key: i64 = MIGRATIONS_KEY;
    select(pg_advisory_xact_lock(key))
}

/// BEGIN and the locks in one message of the simple protocol, which takes no bound values: ids travel
/// as hexadecimal digits, out of which nothing can break.
pub(super) fn begin_and_acquire(request: &Request) -> String {
    let mut sql = format!("{BEGIN}; ");
    push_acquire_with_timeout(&mut sql, request);
    sql
}

/// The same inside a transaction: an error ends at the savepoint.
pub(super) fn acquire_in_savepoint(request: &Request) -> String {
    let mut sql = "SAVEPOINT diesel_locks; ".to_owned();
    push_acquire_with_timeout(&mut sql, request);
    sql.push_str("; RELEASE SAVEPOINT diesel_locks");
    sql
}

/// `statement_timeout`, which counts the whole statement, and not `lock_timeout`, which starts anew with
/// each holder that is waited for. When the time is up there are both: what is free is had, though the
/// server takes its time, what is held is not waited for. Both are set back to what the session had, also
/// for the case that it is a limit of this transaction only.
fn push_acquire_with_timeout(sql: &mut String, request: &Request) {
    let Wait::AtMost(_) = request.wait else {
        push_acquire(sql, request);
        return;
    };
    let (limit, lock_limit) = match request.remaining_millis().unwrap_or(i32::MAX) {
        0 => (
            grace_ms(request.ids.len()),
            nowait_lock_timeout_ms(request.ids.len()),
        ),
        left => (left, 0),
    };
    // The values are read before they are set: PostgreSQL evaluates a list of results from left to right
    // (test `the_sessions_limits_are_as_before_after_a_wait`).
    let _ = write!(
        sql,
        "SELECT set_config('diesel_locks.statement_timeout', current_setting('statement_timeout'), true), \
         set_config('diesel_locks.lock_timeout', current_setting('lock_timeout'), true), \
         set_config('lock_timeout', (x'{lock_limit:08x}'::int)::text, true), \
         set_config('statement_timeout', (x'{limit:08x}'::int)::text, true); "
    );
    push_acquire(sql, request);
    sql.push_str(
        "; SELECT set_config('statement_timeout', current_setting('diesel_locks.statement_timeout'), true), \
         set_config('lock_timeout', current_setting('diesel_locks.lock_timeout'), true)",
    );
}

fn push_acquire(sql: &mut String, request: &Request) {
    if let [id] = request.ids.as_slice() {
        sql.push_str("SELECT diesel_locks_acquire_one(");
        push_literal(sql, id.as_str());
    } else {
        sql.push_str("SELECT diesel_locks_acquire(ARRAY[");
        for (position, id) in request.ids.iter().enumerate() {
            if position > 0 {
                sql.push_str(", ");
            }
            push_literal(sql, id.as_str());
        }
        sql.push_str("]::text[]");
    }
    sql.push_str(if request.is_kept() {
        ", true)"
    } else {
        ", false)"
    });
}

/// ASCII is the same in all encodings that a server can have; anything else is converted.
fn push_literal(sql: &mut String, id: &str) {
    let (before, each, after) = if id.is_ascii() {
        ("E'", "\\x", "'")
    } else {
        ("convert_from('\\x", "", "', 'UTF8')")
    };
    sql.push_str(before);
    for byte in id.bytes() {
        let _ = write!(sql, "{each}{byte:02x}");
    }
    sql.push_str(after);
}
