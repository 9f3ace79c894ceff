//! The statements for transactions and object locks on MySQL and MariaDB.
//!
//! One text serves both: MySQL runs the text in `/*!80000 .. */`, MariaDB the text in `/*M!100100 .. */`, and the other
//! is a comment.

use std::fmt::Write;

use diesel::dsl::{auto_type, delete as delete_from, insert_into};
use diesel::expression::{AppearsOnTable, Expression, SelectableExpression, ValidGrouping};
use diesel::mysql::Mysql;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};

use super::writers::UNKNOWN;
use crate::engine::raw_sql::statement;
use crate::object_lock::acquire::Request;
use crate::schema::mysql::diesel_locks_objects::{self, dsl};
use crate::transaction::options::Access;
use crate::{ObjectId, TransactionOptions, Wait};

/// Sent before BEGIN of a transaction in which a closure runs.
///
/// InnoDB ends the whole transaction when it breaks a deadlock with it, and with autocommit each later statement of the
/// closure would commit by itself. Without autocommit they form another transaction, which this crate rolls back.
macro_rules! no_autocommit {
    () => {
        "SET @diesel_locks_autocommit = COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit), \
         SESSION autocommit = 0; "
    };
}

/// Restores autocommit. Sent after the end of the transaction, because it would commit an open one. Changes nothing if
/// `no_autocommit` has not run.
macro_rules! autocommit {
    () => {
        "SET SESSION autocommit = COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit), \
         @diesel_locks_autocommit = NULL"
    };
}

/// Sent after BEGIN: a savepoint by which [`COMMIT`] recognises the transaction.
macro_rules! mark {
    () => {
        "; SAVEPOINT diesel_locks_started"
    };
}

/// READ COMMITTED for this transaction only. At this level InnoDB locks no gap beside the row, and the closure reads
/// what the last holder committed.
pub(super) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN";

/// [`BEGIN`] for a transaction in which a closure runs.
pub(super) const BEGIN_MARKED: &str = concat!(
    no_autocommit!(),
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN",
    mark!()
);

/// RELEASE fails, and COMMIT is not run, if no transaction or another one is open.
pub(super) const COMMIT: &str = concat!(
    "RELEASE SAVEPOINT diesel_locks_started; COMMIT; ",
    autocommit!()
);

/// RELEASE fails, and ROLLBACK is not run, if no transaction or another one is open.
pub(super) const ROLLBACK_BEGUN: &str = concat!(
    "RELEASE SAVEPOINT diesel_locks_started; ROLLBACK; ",
    autocommit!()
);

/// Rolls back any open transaction.
pub(super) const ROLLBACK: &str = concat!("ROLLBACK; ", autocommit!());

/// RELEASE fails, and names the savepoint, if no transaction is open: then SAVEPOINT has no effect.
pub(super) const ASSERT_OPEN: &str =
    "SAVEPOINT diesel_locks_open; RELEASE SAVEPOINT diesel_locks_open";

/// The name in the error of [`ASSERT_OPEN`].
pub(super) const PROBE: &str = "diesel_locks_open";

/// SET TRANSACTION applies to the next transaction only and is sent with its BEGIN: it does not change the session and
/// takes no round trip.
pub(super) fn begin(transaction: &TransactionOptions) -> String {
    let mut sql = no_autocommit!().to_owned();
    if let Some(level) = transaction.isolation {
        sql.push_str("SET TRANSACTION ISOLATION LEVEL ");
        sql.push_str(level.sql());
        sql.push_str("; ");
    }
    sql.push_str(match transaction.access {
        Some(Access::ReadOnly) => "START TRANSACTION READ ONLY",
        Some(Access::ReadWrite) => "START TRANSACTION READ WRITE",
        None => "BEGIN",
    });
    sql.push_str(mark!());
    sql
}

/// The most objects that one message locks. An id has up to 1020 bytes and is in the message five times, in hexadecimal
/// digits: 1 MB in total. MariaDB's default for `max_allowed_packet` is 16 MB.
pub(super) const LOCK_BATCH: usize = 100;

/// BEGIN and transient locks on free objects in one message, which takes one round trip like BEGIN alone. It fails when
/// an object is not free; [`undo`] reverts what it has done until then.
pub(super) fn begin_and_acquire(request: &Request) -> String {
    let mut sql = String::new();
    if is_limited(request) {
        // More time than the message takes; a wait may exceed its limit by it.
        sql.push_str(
            "SET @diesel_locks_gate = NULL /*!80000 , \
             @diesel_locks_limit = @@SESSION.max_execution_time, SESSION max_execution_time = 20 */; ",
        );
    }
    sql.push_str(BEGIN_MARKED);
    push_acquire_free(&mut sql, &request.ids, "");
    push_restore_limit(&mut sql, request);
    sql
}

/// Reverts [`begin_and_acquire`], whichever of its statements has failed.
pub(super) fn undo(request: &Request) -> String {
    let mut sql = ROLLBACK.to_owned();
    push_leave_gates(&mut sql, &request.ids);
    push_restore_limit(&mut sql, request);
    sql
}

/// Whether to limit the statements' time: on MySQL, NOWAIT applies to rows, but a statement waits for a locked table.
fn is_limited(request: &Request) -> bool {
    matches!(request.wait, Wait::AtMost(_))
}

fn push_restore_limit(sql: &mut String, request: &Request) {
    if is_limited(request) {
        sql.push_str(
            "; SET @diesel_locks_gate = NULL /*!80000 , SESSION max_execution_time = \
             CAST(COALESCE(@diesel_locks_limit, @@SESSION.max_execution_time) AS UNSIGNED), \
             @diesel_locks_limit = NULL */",
        );
    }
}

/// The session's `lock_wait_timeout` from before [`SetLimit`], or the present value if it was not changed. The cast,
/// because MySQL does not know the type of a variable that is NULL.
const WAIT_BEFORE: &str =
    "CAST(COALESCE(@diesel_locks_wait, @@SESSION.lock_wait_timeout) AS UNSIGNED)";

/// Limits a SELECT to 200 ms on MySQL, where it would otherwise wait without limit for a table that another session has
/// locked. A comment on MariaDB.
pub(super) const LIMIT_HINT: &str = "/*+ MAX_EXECUTION_TIME(200) */ ";

/// [`begin_and_acquire`] in an open transaction.
pub(super) fn acquire_in_savepoint(ids: &[ObjectId], wait: Wait) -> String {
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
pub(super) fn undo_savepoint(ids: &[ObjectId]) -> String {
    let mut sql = "DO 0".to_owned();
    push_leave_gates(&mut sql, ids);
    sql.push_str("; ROLLBACK TO SAVEPOINT diesel_locks; RELEASE SAVEPOINT diesel_locks");
    sql
}

/// A message of several statements has no bound values: ids are written as hexadecimal digits. `hint` is for the first
/// statement that accesses the table, which is the one that may wait for a locked table.
fn push_acquire_free(sql: &mut String, ids: &[ObjectId], hint: &str) {
    for id in ids {
        let (id, named_lock) = (hexadecimal(id), named_lock_of(id));
        let _ = write!(
            sql,
            // The subquery returns two rows, which is an error, if another session holds the named lock or the session
            // does not know yet that there is one writer.
            "; SET @diesel_locks_gate = \
             (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE COALESCE(GET_LOCK({named_lock}, 0), 0) = 0 OR {UNKNOWN})\
             ; SELECT {hint}kept FROM diesel_locks_objects WHERE id = {id} FOR UPDATE NOWAIT\
             ; INSERT IGNORE INTO diesel_locks_objects (id, kept) VALUES ({id}, FALSE)\
             ; DELETE FROM diesel_locks_objects WHERE id = {id} AND NOT kept\
             ; DO RELEASE_LOCK({named_lock})"
        );
    }
}

fn push_leave_gates(sql: &mut String, ids: &[ObjectId]) {
    for id in ids {
        let _ = write!(sql, "; DO RELEASE_LOCK({})", named_lock_of(id));
    }
}

fn hexadecimal(id: &ObjectId) -> String {
    let mut digits = "x'".to_owned();
    for byte in id.as_str().bytes() {
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push('\'');
    digits
}

/// The SQL of [`NAMED_LOCK`] for an id.
fn named_lock_of(id: &ObjectId) -> String {
    format!("{NAMED_LOCK}{}{NAMED_LOCK_END}", hexadecimal(id))
}

/// Stores the error number of the last statement in a variable. This statement can't be prepared.
pub(super) const KEEP_ERROR_NUMBER: &str =
    "GET DIAGNOSTICS CONDITION 1 @diesel_locks_errno = MYSQL_ERRNO";

/// Locks the row if it exists; waits while another transaction holds it.
#[auto_type]
pub(super) fn lock_row<'a>(id: &'a [u8]) -> _ {
    let session: Session = SESSION;
    let unknown: WriterUnknown = WriterUnknown;
    diesel_locks_objects::table
        .select((session, unknown))
        .filter(dsl::id.eq(id))
        .for_update()
}

statement! {
    Mysql, MysqlConnection;
    /// `lock_row` without waiting: fails when another transaction holds the row. Raw for its hint, because on MySQL
    /// NOWAIT does not apply to a locked table.
    LockRowNow<'a> { id: &'a [u8] } -> ((BigInt, Nullable<BigInt>), BigInt),
    |self, out| {
        out.push_sql("SELECT ");
        out.push_sql(LIMIT_HINT);
        QueryFragment::<Mysql>::walk_ast(&SESSION, out.reborrow())?;
        out.push_sql(", ");
        QueryFragment::<Mysql>::walk_ast(&WriterUnknown, out.reborrow())?;
        out.push_sql(" FROM diesel_locks_objects WHERE id = ");
        out.push_bind_param::<Binary, _>(&self.id)?;
        out.push_sql(" FOR UPDATE NOWAIT");
    }
}

#[auto_type]
pub(super) fn insert<'a>(id: &'a [u8], kept: bool) -> _ {
    insert_into(diesel_locks_objects::table).values((dsl::id.eq(id), dsl::kept.eq(kept)))
}

#[auto_type]
pub(super) fn delete<'a>(id: &'a [u8]) -> _ {
    delete_from(diesel_locks_objects::table.filter(dsl::id.eq(id)))
}

/// Locks kept rows that are not locked, and returns them.
#[auto_type]
pub(super) fn free_kept(limit: i64) -> _ {
    diesel_locks_objects::table
        .select(dsl::id)
        .filter(dsl::kept)
        .limit(limit)
        .for_update()
        .skip_locked()
}

#[auto_type]
pub(super) fn delete_all<'a>(ids: &'a [Vec<u8>]) -> _ {
    delete_from(diesel_locks_objects::table.filter(dsl::id.eq_any(ids)))
}

/// An expression: 1 if the session does not know yet that there is one writer.
#[derive(Clone, Copy, Debug, QueryId)]
pub(super) struct WriterUnknown;

impl Expression for WriterUnknown {
    type SqlType = BigInt;
}

impl<QS> AppearsOnTable<QS> for WriterUnknown {}
impl<QS> SelectableExpression<QS> for WriterUnknown {}

impl<GB> ValidGrouping<GB> for WriterUnknown {
    type IsAggregate = diesel::expression::is_aggregate::Never;
}

impl QueryFragment<Mysql> for WriterUnknown {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.push_sql(UNKNOWN);
        Ok(())
    }
}

/// The session's isolation level, and whether a transaction is open, which MySQL does not report.
type Session = (SessionIsolation, InTransaction);

const SESSION: Session = (SessionIsolation, InTransaction);

/// The session's isolation level, 1 to 4 as in `LEVELS`. A number, because a broken client library loses texts
/// (`Error::BrokenClientLibrary`). A level that `SET TRANSACTION` has set for one transaction is not visible without
/// the privilege PROCESS.
#[derive(Clone, Copy, Debug, QueryId)]
pub(super) struct SessionIsolation;

/// 1 in a transaction, 0 outside; NULL on MySQL.
pub(super) const IN_TRANSACTION: &str =
    "CAST(/*!80000 NULL *//*M!100100 @@in_transaction */ AS SIGNED)";

/// [`IN_TRANSACTION`].
#[derive(Clone, Copy, Debug, QueryId)]
pub(super) struct InTransaction;

impl Expression for InTransaction {
    type SqlType = Nullable<BigInt>;
}

impl<QS> AppearsOnTable<QS> for InTransaction {}
impl<QS> SelectableExpression<QS> for InTransaction {}

impl<GB> ValidGrouping<GB> for InTransaction {
    type IsAggregate = diesel::expression::is_aggregate::Never;
}

impl QueryFragment<Mysql> for InTransaction {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.push_sql(IN_TRANSACTION);
        Ok(())
    }
}

impl Expression for SessionIsolation {
    type SqlType = BigInt;
}

impl<QS> AppearsOnTable<QS> for SessionIsolation {}
impl<QS> SelectableExpression<QS> for SessionIsolation {}

impl<GB> ValidGrouping<GB> for SessionIsolation {
    type IsAggregate = diesel::expression::is_aggregate::Never;
}

impl QueryFragment<Mysql> for SessionIsolation {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        // MariaDB has had the newer name only since 11.1, and still has the older.
        out.push_sql(
            "FIELD(/*!80000 @@SESSION.transaction_isolation *//*M!100100 @@SESSION.tx_isolation */, \
             'READ-UNCOMMITTED', 'READ-COMMITTED', 'REPEATABLE-READ', 'SERIALIZABLE')",
        );
        Ok(())
    }
}

/// The name of an object's named lock. GET_LOCK's names are those of the whole server, ignore case and have at most 64
/// characters, so the name is a digest of database and id. If two ids ever had the same digest, one would wait a moment
/// longer: the object lock is the row.
const NAMED_LOCK: &str =
    "CONCAT('diesel:', SHA2(CONCAT(CAST(COALESCE(DATABASE(), '') AS BINARY), '.', CAST(";
const NAMED_LOCK_END: &str = " AS BINARY)), 224))";

statement! {
    Mysql, MysqlConnection;
    /// Returns 1 if the named lock is acquired, 0 if another session held it until the time-out, and NULL if
    /// interrupted; and [`UNKNOWN`].
    AcquireNamedLock<'a> { id: &'a [u8], seconds: i32 } -> (Nullable<BigInt>, BigInt),
    |self, out| {
        out.push_sql("SELECT GET_LOCK(");
        out.push_sql(NAMED_LOCK);
        out.push_bind_param::<Binary, _>(&self.id)?;
        out.push_sql(NAMED_LOCK_END);
        out.push_sql(", ");
        out.push_bind_param::<Integer, _>(&self.seconds)?;
        out.push_sql("), ");
        out.push_sql(UNKNOWN);
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Has no effect if this session does not hold the named lock. Not a SELECT, which may return an error in place of
    /// its row.
    ReleaseNamedLock<'a> { id: &'a [u8] } -> Nullable<BigInt>,
    |self, out| {
        out.push_sql("DO RELEASE_LOCK(");
        out.push_sql(NAMED_LOCK);
        out.push_bind_param::<Binary, _>(&self.id)?;
        out.push_sql(NAMED_LOCK_END);
        out.push_sql(")");
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Acquires the named lock under which one session at a time migrates this database.
    AcquireMigrationLock { seconds: i32 } -> Nullable<BigInt>,
    |self, out| {
        out.push_sql("SELECT GET_LOCK(CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224)), ");
        out.push_bind_param::<Integer, _>(&self.seconds)?;
        out.push_sql(")");
    }
}

statement! {
    Mysql, MysqlConnection;
    ReleaseMigrationLock {} -> Nullable<BigInt>,
    |self, out| {
        out.push_sql("DO RELEASE_LOCK(CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224)))");
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Limits the time of statements, which is the only time-out below a second. The hint MAX_EXECUTION_TIME and SET
    /// STATEMENT need no separate statement, but accept no bound values. On MySQL this limit does not apply to PREPARE,
    /// which waits for a locked table, nor to statements that write, so `lock_wait_timeout` (whole seconds) is set too.
    SetLimit { millis: i32, seconds: i32 } -> Integer,
    |self, out| {
        out.push_sql(
            "SET @diesel_locks_limit = \
             /*!80000 @@SESSION.max_execution_time *//*M!100100 @@SESSION.max_statement_time */, \
             @diesel_locks_wait = @@SESSION.lock_wait_timeout, \
             SESSION lock_wait_timeout = ",
        );
        out.push_bind_param::<Integer, _>(&self.seconds)?;
        out.push_sql(
            ", SESSION /*!80000 max_execution_time = *//*M!100100 max_statement_time = 0.001 * */ ",
        );
        out.push_bind_param::<Integer, _>(&self.millis)?;
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Restores the limits. Has no effect unless [`SetLimit`] has run before: the variables are NULL then. The cast,
    /// because MySQL does not know the type of a variable that is NULL.
    RestoreLimit {} -> Integer,
    |self, out| {
        out.push_sql(
            "SET SESSION /*!80000 max_execution_time = CAST(COALESCE(@diesel_locks_limit, \
             @@SESSION.max_execution_time) AS UNSIGNED) *//*M!100100 max_statement_time = \
             COALESCE(@diesel_locks_limit, @@SESSION.max_statement_time) */, @diesel_locks_limit = NULL, SESSION lock_wait_timeout = ",
        );
        out.push_sql(WAIT_BEFORE);
        out.push_sql(", @diesel_locks_wait = NULL");
    }
}

statement! {
    Mysql, MysqlConnection;
    ErrorNumber {} -> Nullable<BigInt>,
    |self, out| {
        out.push_sql("SELECT CAST(@diesel_locks_errno AS SIGNED)");
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Reads [`Session`].
    SessionState {} -> (BigInt, Nullable<BigInt>),
    |self, out| {
        out.push_sql("SELECT ");
        QueryFragment::<Mysql>::walk_ast(&SessionIsolation, out.reborrow())?;
        out.push_sql(", ");
        QueryFragment::<Mysql>::walk_ast(&InTransaction, out)?;
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Reads 1 if the time-out of a lock wait rolls back the whole transaction.
    RollbackOnTimeout {} -> BigInt,
    |self, out| {
        out.push_sql("SELECT @@GLOBAL.innodb_rollback_on_timeout");
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Any text.
    AnyText {} -> Text,
    |self, out| {
        out.push_sql("SELECT 'any text'");
    }
}
