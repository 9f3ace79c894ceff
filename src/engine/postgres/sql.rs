//! PostgreSQL's statements for transactions and object locks.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Duration;

use diesel::dsl::{auto_type, case_when, select, sql};
use diesel::expression::SqlLiteral;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text};

use crate::engine::dialect::DbNow;
use crate::engine::literal;
use crate::engine::tables::diesel_locks_objects::{self, dsl};
use crate::engine::tables::{Named, diesel_locks_wanted as wanted};
use crate::link::raw_sql::{ASSERT_BEGUN, BEGIN_TRACKED, statement};
use crate::values::lock_request::Request;
use crate::values::transaction_options::Access;
use crate::{IsolationLevel, ObjectId, TransactionOptions, Wait};

#[diesel::declare_sql_function]
extern "SQL" {
    /// Returns `NULL`, or the isolation level if it is unsuitable.
    fn diesel_locks_acquire_one(object_id: Text, keep: Bool) -> Nullable<Text>;
    /// Acquires several locks, and those of the objects in `shared` shared; returns what `diesel_locks_acquire_one` does.
    fn diesel_locks_acquire(
        object_ids: Array<Text>,
        keep: Bool,
        shared: Array<Text>,
        holds_nothing: Bool,
    ) -> Nullable<Text>;
    /// Returns `locked`, `held`, or the isolation level if it is unsuitable.
    fn diesel_locks_try_acquire(
        object_ids: Array<Text>,
        keep: Bool,
        shared: Array<Text>,
        holds_nothing: Bool,
    ) -> Text;
    fn diesel_locks_want(object_ids: Array<Text>, shared: Array<Text>, us: BigInt);
    fn version() -> Text;
    fn pg_backend_pid() -> Integer;
    fn pg_advisory_xact_lock(key: BigInt);
    fn pg_advisory_unlock(key: BigInt) -> Bool;
    fn pg_try_advisory_xact_lock(class: Integer, key: Integer) -> Bool;
}

/// "diesel-l" as a number, so that no application uses this key by chance.
pub(crate) const MIGRATIONS_KEY: i64 = i64::from_be_bytes(*b"diesel-l");

/// The first key of each kept row's advisory lock: the table's OID, as in the migration.
const ADVISORY_CLASS: &str = "'diesel_locks_objects'::regclass::integer";

/// The `lock_timeout` of the last attempt: as in `diesel_locks_try_acquire`, and less with many ids, for each of which it counts.
pub(crate) fn nowait_lock_timeout(ids: usize) -> Duration {
    Duration::from_millis((200 / ids.max(1)).clamp(1, 10) as u64)
}

/// How long before `transaction_timeout` a statement that waits is ended: enough to roll back.
const BEFORE_TRANSACTION_TIMEOUT_MS: i32 = 20;

/// Sent with BEGIN: a setting that ends with the transaction, by which [`COMMIT`] recognises it.
const SET_MARK: &str = "SET LOCAL diesel_locks.started = 'started'";

/// Fails, and names [`MARK`], in a transaction that this crate has not started.
///
/// The value of the setting is the end of its own name. In a session that has run a transaction of this crate, it is empty
/// in others: then the text is no name of a setting. A cast and CASE in place of the second call cost a third more.
const ASSERT_MARKED: &str =
    "SELECT current_setting('diesel_locks.' || current_setting('diesel_locks.started'))";

/// READ COMMITTED, because at a higher level the closure would read from a snapshot taken before the wait.
pub(crate) static BEGIN_UNMARKED: LazyLock<String> =
    LazyLock::new(|| format!("{BEGIN_TRACKED}, ISOLATION LEVEL READ COMMITTED; {ASSERT_BEGUN}"));

pub(crate) static BEGIN: LazyLock<String> =
    LazyLock::new(|| format!("{}; {SET_MARK}", *BEGIN_UNMARKED));

/// COMMIT is not run in a transaction that has failed, which it would roll back, or that this crate has not started.
pub(crate) static COMMIT: LazyLock<String> = LazyLock::new(|| format!("{ASSERT_MARKED}; COMMIT"));

/// ROLLBACK is not run in such a transaction either.
pub(crate) static ROLLBACK: LazyLock<String> =
    LazyLock::new(|| format!("{ASSERT_MARKED}; ROLLBACK"));

/// In the `application_name` of a session, before and between the ids of its locks.
const SESSION_NAME: &str = "diesel_locks:";
const BETWEEN_IDS: char = '|';
/// The server cuts a longer name.
const MAX_SESSION_NAME: usize = 63;

/// [`BEGIN`] for the locks of a request, with the name of the session if the request sets one.
pub(crate) fn begin_for(request: &Request) -> Cow<'static, str> {
    let Some(name) = session_name(request) else {
        return Cow::Borrowed(&BEGIN);
    };
    let mut sql = format!("{}; SET LOCAL application_name = ", *BEGIN);
    literal::push_for_postgres(&mut sql, &name);
    Cow::Owned(sql)
}

/// The ids of kept locks are in rows that all sessions read.
fn session_name(request: &Request) -> Option<String> {
    if !request.names_session || request.is_kept() || request.exclusive().next().is_none() {
        return None;
    }
    let mut name = SESSION_NAME.to_owned();
    for (position, id) in request.exclusive().enumerate() {
        let is_shown = |c| matches!(c, ' '..='~') && c != BETWEEN_IDS;
        if !id.as_str().chars().all(is_shown) {
            return None;
        }
        if position > 0 {
            name.push(BETWEEN_IDS);
        }
        name.push_str(id.as_str());
        if name.len() > MAX_SESSION_NAME {
            return None;
        }
    }
    Some(name)
}

/// The ids in the name of a session.
pub(crate) fn named_ids(application_name: &str) -> impl Iterator<Item = &str> {
    let ids = application_name.strip_prefix(SESSION_NAME).into_iter();
    ids.flat_map(|ids| ids.split(BETWEEN_IDS))
}

const MARK: &str = "diesel_locks.";

/// Whether this is the error of [`COMMIT`], in any language, in a transaction that this crate has not started, or outside of
/// a transaction. It names the setting that is missing, in quotation marks: `diesel_locks.` or `diesel_locks.started`.
pub(crate) fn names_mark(message: &str) -> bool {
    message.match_indices(MARK).any(|(start, _)| {
        let end = &message[start + MARK.len()..];
        let end = end.strip_prefix("started").unwrap_or(end);
        !end.starts_with(|next: char| next.is_alphanumeric() || next == '_')
    })
}

pub(crate) fn begin(transaction: &TransactionOptions) -> String {
    let mut sql = String::from(if transaction.deferrable {
        "BEGIN DEFERRABLE"
    } else {
        BEGIN_TRACKED
    });
    if let Some(level) = transaction.isolation {
        let _ = write!(sql, ", ISOLATION LEVEL {}", level.sql());
    }
    match transaction.access {
        Some(Access::ReadOnly) => sql.push_str(", READ ONLY"),
        Some(Access::ReadWrite) => sql.push_str(", READ WRITE"),
        None => {}
    }
    if transaction.isolation == Some(IsolationLevel::ReadCommitted) {
        let _ = write!(sql, "; {ASSERT_BEGUN}");
    }
    let _ = write!(sql, "; {SET_MARK}");
    sql
}

pub(crate) const ROLLBACK_TO_SAVEPOINT: &str =
    "ROLLBACK TO SAVEPOINT diesel_locks; RELEASE SAVEPOINT diesel_locks";

pub(crate) fn texts(ids: &[ObjectId]) -> Vec<&str> {
    ids.iter().map(ObjectId::as_str).collect()
}

#[auto_type]
pub(crate) fn acquire<'a>(ids: Vec<&'a str>, keep: bool, shared: Vec<&'a str>) -> _ {
    select(diesel_locks_acquire(ids, keep, shared, false))
}

/// `holds_nothing`: the transaction was begun for the request.
#[auto_type]
pub(crate) fn try_acquire<'a>(request: &'a Request, holds_nothing: bool) -> _ {
    let ids: Vec<&'a str> = texts(&request.ids);
    let keep: bool = request.is_kept();
    let shared: Vec<&'a str> = texts(&request.shared);
    let admits: bool = holds_nothing && !request.shared.is_empty();
    select(diesel_locks_try_acquire(ids, keep, shared, admits))
}

/// Has sessions that hold nothing not acquire the shared locks of these objects, for so many microseconds.
#[auto_type]
pub(crate) fn want<'a>(ids: Vec<&'a str>, shared: Vec<&'a str>, micros: i64) -> _ {
    select(diesel_locks_want(ids, shared, micros))
}

/// Locks kept rows that are not locked, and returns them.
///
/// CASE, because the planner may evaluate the function before another condition. No ORDER BY, because LIMIT then ends
/// the scan, and no more rows are locked than returned.
#[auto_type]
pub(crate) fn free_kept(limit: i64) -> _ {
    let class: SqlLiteral<Integer> = sql(ADVISORY_CLASS);
    let lock: pg_try_advisory_xact_lock<SqlLiteral<Integer>, dsl::advisory_key> =
        pg_try_advisory_xact_lock(class, dsl::advisory_key);
    diesel_locks_objects::table
        .select((dsl::id, dsl::advisory_key))
        .filter(case_when(dsl::kept, lock).otherwise(false))
        .limit(limit)
}

/// The marks that have expired.
#[auto_type]
pub(crate) fn unwanted() -> _ {
    wanted::table.filter(wanted::until_us.le(DbNow))
}

/// By id and key: the row may have been purged before its key was locked, and a new row with the same id has another key.
#[auto_type]
pub(crate) fn of_keys<'a>(ids: &'a [Named<'a>], keys: &'a [i32]) -> _ {
    diesel_locks_objects::table
        .filter(dsl::id.eq_any(ids))
        .filter(dsl::advisory_key.eq_any(keys))
}

statement! {
    Pg;
    /// Raw, because the DSL does not have the view.
    Prepared {} -> Nullable<Text>,
    |self| {
        "SELECT string_agg(quote_literal(gid), ', ' ORDER BY prepared) FROM pg_prepared_xacts \
         WHERE database = current_database() AND owner = session_user"
    }
}

/// BEGIN and the locks in one message of the simple protocol, which has no bound values. Creates no row of a shared lock, unless
/// this transaction is for it.
pub(crate) fn begin_and_acquire(request: &Request, creates_shared: bool) -> String {
    let acquire = acquire_in_time(request, !creates_shared);
    format!("{}; {acquire}", begin_for(request))
}

/// In the error of [`begin_and_acquire`] and [`try_acquire`]: a shared lock has no row yet.
pub(crate) const NO_SHARED_ROW: &str = "diesel_locks: a shared object has no row";

/// The locks in an open transaction, in one message with a savepoint, to which the caller rolls back after an error.
pub(crate) fn acquire_in_savepoint(request: &Request) -> String {
    let acquire = acquire_in_time(request, false);
    format!("SAVEPOINT diesel_locks; {acquire}; RELEASE SAVEPOINT diesel_locks")
}

/// Limits the wait by `statement_timeout`, which counts the whole statement, and not by `lock_timeout`, which starts again with
/// each holder. When the time is up, sets both: the statement then acquires free locks even on a slow server, but does not wait
/// for holders.
fn acquire_in_time(request: &Request, holds_nothing: bool) -> String {
    let acquire = acquire_as_text(request, holds_nothing);
    let Wait::AtMost(_) = request.wait else {
        return acquire;
    };
    let ids = request.ids.len();
    let (limit, lock_limit) = match request.remaining_millis().unwrap_or(i32::MAX) {
        // Far more than acquiring free locks takes. Without it the attempt could wait forever for a lock whose holders change
        // faster than its `lock_timeout`.
        0 => (200 + ids as u64, nowait_lock_timeout(ids).as_millis()),
        left => (left.unsigned_abs().into(), 0),
    };
    // `transaction_timeout` (PostgreSQL 17, otherwise NULL) would close the connection.
    let limit = format!(
        "greatest(1, least({limit}, floor(1000 * extract(epoch FROM \
         nullif(current_setting('transaction_timeout', true), '0')::interval + now() - clock_timestamp())) - \
         {BEFORE_TRANSACTION_TIMEOUT_MS}))::integer::text"
    );
    // The values are read before they are set: PostgreSQL evaluates a select list from left to right
    // (test `session_limits_are_restored_after_a_wait`).
    format!(
        "SELECT set_config('diesel_locks.statement_timeout', current_setting('statement_timeout'), true), \
         set_config('diesel_locks.lock_timeout', current_setting('lock_timeout'), true), \
         set_config('lock_timeout', '{lock_limit}', true), \
         set_config('statement_timeout', {limit}, true); {acquire}; \
         SELECT set_config('statement_timeout', current_setting('diesel_locks.statement_timeout'), true), \
         set_config('lock_timeout', current_setting('diesel_locks.lock_timeout'), true)"
    )
}

fn acquire_as_text(request: &Request, holds_nothing: bool) -> String {
    let (ids, kept) = (literals(&request.ids), request.is_kept());
    match (request.ids.len(), request.shared.is_empty()) {
        (1, true) => format!("SELECT diesel_locks_acquire_one({ids}, {kept})"),
        (_, true) => format!("SELECT diesel_locks_acquire(ARRAY[{ids}]::text[], {kept})"),
        (_, false) => format!(
            "SELECT diesel_locks_acquire(ARRAY[{ids}]::text[], {kept}, ARRAY[{}]::text[], {holds_nothing})",
            literals(&request.shared)
        ),
    }
}

fn literals(ids: &[ObjectId]) -> String {
    let mut literals = String::new();
    for (position, id) in ids.iter().enumerate() {
        if position > 0 {
            literals.push_str(", ");
        }
        literal::push_for_postgres(&mut literals, id.as_str());
    }
    literals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_mark_is_known_in_any_language() {
        for message in [
            r#"unrecognized configuration parameter "diesel_locks.""#,
            r#"unrecognized configuration parameter "diesel_locks.started""#,
            "paramètre de configuration « diesel_locks. » non reconnu",
            "設定パラメータ\"diesel_locks.\"は不明です",
        ] {
            assert!(names_mark(message), "{message}");
        }
        for message in [
            r#"unrecognized configuration parameter "diesel_locks""#,
            r#"relation "diesel_locks.seats" does not exist"#,
            r#"unrecognized configuration parameter "diesel_locks.started_at""#,
        ] {
            assert!(!names_mark(message), "{message}");
        }
    }
}
