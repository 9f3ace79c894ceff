//! What is sent to MySQL and MariaDB.
//!
//! One text serves both: MySQL runs what stands in `/*!80000 .. */`, MariaDB what stands in
//! `/*M!100100 .. */`, and each takes the other's for a comment.

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

/// Before BEGIN, for a transaction in which a closure runs.
///
/// InnoDB ends the whole transaction when it breaks a deadlock with it, and what comes after that would be
/// committed statement by statement. Without autocommit it is one more transaction, for our ROLLBACK.
macro_rules! no_autocommit {
    () => {
        "SET @diesel_locks_autocommit = COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit), \
         SESSION autocommit = 0; "
    };
}

/// After the end of the transaction, as it would commit one that is open. Changes nothing when the beginning has
/// not been reached.
macro_rules! autocommit {
    () => {
        "SET SESSION autocommit = COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit), \
         @diesel_locks_autocommit = NULL"
    };
}

/// After BEGIN, for [`COMMIT`] to know the transaction.
macro_rules! mark {
    () => {
        "; SAVEPOINT diesel_locks_started"
    };
}

/// READ COMMITTED for the one transaction that begins. The level leaves no gaps locked beside the row,
/// and the closure reads what the last holder committed.
pub(super) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN";

/// The same for a transaction in which a closure runs.
pub(super) const BEGIN_MARKED: &str = concat!(
    no_autocommit!(),
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN",
    mark!()
);

/// The savepoint is not there when the transaction is another one, or none: then COMMIT is not run.
pub(super) const COMMIT: &str = concat!(
    "RELEASE SAVEPOINT diesel_locks_started; COMMIT; ",
    autocommit!()
);

/// The same for ROLLBACK.
pub(super) const ROLLBACK_BEGUN: &str = concat!(
    "RELEASE SAVEPOINT diesel_locks_started; ROLLBACK; ",
    autocommit!()
);

/// Whatever is open.
pub(super) const ROLLBACK: &str = concat!("ROLLBACK; ", autocommit!());

/// An error that names the savepoint when no transaction is open: then no savepoint is made.
pub(super) const ASSERT_OPEN: &str =
    "SAVEPOINT diesel_locks_open; RELEASE SAVEPOINT diesel_locks_open";

/// What that error names.
pub(super) const PROBE: &str = "diesel_locks_open";

/// SET TRANSACTION is for the next transaction alone, and travels with its BEGIN: nothing stays in the
/// session, and it takes no round trip.
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

/// Objects that one message locks. An id has up to 1020 bytes and stands in it five times, as hexadecimal digits:
/// that is 1 MB, and 16 MB is MariaDB's default for `max_allowed_packet`.
pub(super) const LOCK_BATCH: usize = 100;

/// BEGIN and transient locks on free objects in one message, which costs what BEGIN alone costs. It fails
/// when anybody is in the way; what it did until then is for [`undo`].
pub(super) fn begin_and_acquire(request: &Request) -> String {
    let mut sql = String::new();
    if is_limited(request) {
        // More than it takes, and part of what a wait may take beyond its time.
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

/// After [`begin_and_acquire`] has failed, wherever that was.
pub(super) fn undo(request: &Request) -> String {
    let mut sql = ROLLBACK.to_owned();
    push_leave_gates(&mut sql, &request.ids);
    push_restore_limit(&mut sql, request);
    sql
}

/// NOWAIT is for rows alone on MySQL: a table that is locked is waited for.
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

/// NULL when the limit was not set. The cast because MySQL does not know the type of a variable that is NULL.
const WAIT_BEFORE: &str =
    "CAST(COALESCE(@diesel_locks_wait, @@SESSION.lock_wait_timeout) AS UNSIGNED)";

/// How long a SELECT takes at most on MySQL, where a table that another session has locked is waited for without limit.
/// A comment on MariaDB.
pub(super) const LIMIT_HINT: &str = "/*+ MAX_EXECUTION_TIME(200) */ ";

/// [`begin_and_acquire`] in a transaction that is open.
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

/// After [`acquire_in_savepoint`] has failed, wherever that was. Fails after it has left the gates when the transaction
/// is gone.
pub(super) fn undo_savepoint(ids: &[ObjectId]) -> String {
    let mut sql = "DO 0".to_owned();
    push_leave_gates(&mut sql, ids);
    sql.push_str("; ROLLBACK TO SAVEPOINT diesel_locks; RELEASE SAVEPOINT diesel_locks");
    sql
}

/// Without bound values: ids travel as hexadecimal digits. `hint`: the statement that comes to the table first is the
/// one that may have to wait for it.
fn push_acquire_free(sql: &mut String, ids: &[ObjectId], hint: &str) {
    for id in ids {
        let (id, named_lock) = (hexadecimal(id), named_lock_of(id));
        let _ = write!(
            sql,
            // Two rows where one is wanted are an error: the named lock is another's, or it is not known yet whether
            // there is one writer.
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

/// [`NAMED_LOCK`] of an id as text.
fn named_lock_of(id: &ObjectId) -> String {
    format!("{NAMED_LOCK}{}{NAMED_LOCK_END}", hexadecimal(id))
}

/// Keeps the number of the error of the last statement. Not a statement that can be prepared.
pub(super) const KEEP_ERROR_NUMBER: &str =
    "GET DIAGNOSTICS CONDITION 1 @diesel_locks_errno = MYSQL_ERRNO";

/// Locks the row, if there is one; waits for who holds it.
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
    /// The same without waiting: an error when somebody holds it. Raw for its hint: NOWAIT is for rows alone on MySQL.
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

/// Kept rows that nobody has locked, locked now.
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

/// 1 when the session does not know yet that there is one writer.
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

/// The session's isolation level, and whether a transaction is open, which MySQL does not tell.
type Session = (SessionIsolation, InTransaction);

const SESSION: Session = (SessionIsolation, InTransaction);

/// The session's isolation level, 1 to 4 as in `LEVELS`: a number, which no client library loses
/// (`Error::BrokenClientLibrary`). It does not show a level that `SET TRANSACTION` gave to the
/// transaction alone; nothing does, without the right PROCESS.
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

/// The name of an object's named lock. Names of GET_LOCK belong to the whole server, have at most 64
/// characters and ignore case, so that the name is a digest of database and id. Should two ids ever
/// share a digest, one would wait a moment longer; the lock itself is the row.
const NAMED_LOCK: &str =
    "CONCAT('diesel:', SHA2(CONCAT(CAST(COALESCE(DATABASE(), '') AS BINARY), '.', CAST(";
const NAMED_LOCK_END: &str = " AS BINARY)), 224))";

statement! {
    Mysql, MysqlConnection;
    /// 1 when the named lock is acquired, 0 when another session held it all the time, NULL when interrupted. And 1 when the session
    /// does not know yet that there is one writer.
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
    /// Nothing happens when it was not ours. Not a SELECT, which may fail in place of its row.
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
    /// The same for the one who migrates this database.
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
    /// Limits the time of statements: the only limit below a second. The hint MAX_EXECUTION_TIME and
    /// SET STATEMENT would do it without this statement, but take no bound values. On MySQL it is not a limit of
    /// PREPARE, which waits for a table that is locked, nor of statements that write: so, in whole seconds, there is
    /// also one of waits for tables.
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
    /// Sets the limit back, once: the variable is NULL unless [`SetLimit`] has set it, and there is nothing
    /// to set back then. The cast because MySQL does not know the type of a variable that is NULL.
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
    /// [`Session`] alone.
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
    /// 1 when a lock wait that times out rolls back the whole transaction.
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
