//! The statements for transactions and the session on MySQL and MariaDB, and texts that several statements contain.
//!
//! One text serves both: MySQL runs what is in `/*!80000 .. */`, MariaDB what is in `/*M!100100 .. */`.

use std::sync::LazyLock;

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use crate::TransactionOptions;
use crate::engine::dialect::expression;
use crate::link::raw_sql::statement;
use crate::values::transaction_options::Access;

/// MySQL does not report a transaction that the application has begun by its own SQL.
pub(crate) const COMMITTED_AT_ONCE: &str =
    "(/*!80000 @@autocommit *//*M!100100 @@autocommit AND NOT @@in_transaction */)";

/// Sent before BEGIN of a transaction in which a closure runs: see "Transactions" in DESIGN.md.
const NO_AUTOCOMMIT: &str = "SET @diesel_locks_autocommit = \
     COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit + 0), SESSION autocommit = 0";

/// Restores autocommit, after the end of the transaction: it would commit an open one. Changes nothing if [`NO_AUTOCOMMIT`]
/// has not run. With the CAST, because MySQL takes a variable without a value for a text, and refuses texts (error 1231).
const AUTOCOMMIT: &str = "SET SESSION autocommit = \
     CAST(COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit + 0) AS SIGNED), @diesel_locks_autocommit = NULL";

/// Sent after BEGIN: a savepoint by which [`COMMIT`] recognises the transaction.
const MARK: &str = "SAVEPOINT diesel_locks_started";

/// Error 1568 in a transaction that the application has begun by its own SQL. Sent first, before anything has changed.
pub(crate) const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ";

/// READ COMMITTED for this transaction only: InnoDB locks no gap beside the row, and the closure reads what the last holder
/// committed. START TRANSACTION, because MariaDB takes BEGIN for that of a block if `sql_mode` is ORACLE.
pub(crate) static BEGIN: LazyLock<String> =
    LazyLock::new(|| format!("{READ_COMMITTED}{}", *BEGIN_AT_LEVEL));

/// [`BEGIN`] at the level that was set before.
pub(crate) static BEGIN_AT_LEVEL: LazyLock<String> =
    LazyLock::new(|| format!("{NO_AUTOCOMMIT}; START TRANSACTION; {MARK}"));

/// Error 1568 in a transaction that the application has begun by its own SQL. Has no other effect: the next transaction would
/// have the access mode of the session anyway.
pub(crate) const ASSERT_NO_TRANSACTION: &str = "SET /*!80000 @@transaction_read_only = @@SESSION.transaction_read_only */\
     /*M!100100 @@tx_read_only = @@SESSION.tx_read_only */";

/// RELEASE fails, and COMMIT is not run, if no transaction or another one is open.
pub(crate) static COMMIT: LazyLock<String> =
    LazyLock::new(|| format!("RELEASE {MARK}; COMMIT; {AUTOCOMMIT}"));

/// As [`COMMIT`].
pub(crate) static ROLLBACK_STARTED: LazyLock<String> =
    LazyLock::new(|| format!("RELEASE {MARK}; {}", *ROLLBACK));

/// Rolls back any open transaction.
pub(crate) static ROLLBACK: LazyLock<String> = LazyLock::new(|| format!("ROLLBACK; {AUTOCOMMIT}"));

/// SET TRANSACTION applies to the next transaction only, with whose BEGIN it is sent: it takes no round trip.
pub(crate) fn begin(transaction: &TransactionOptions) -> String {
    let level = match transaction.isolation {
        Some(level) => format!("SET TRANSACTION ISOLATION LEVEL {}", level.sql()),
        None => ASSERT_NO_TRANSACTION.to_owned(),
    };
    let access = match transaction.access {
        Some(Access::ReadOnly) => " READ ONLY",
        Some(Access::ReadWrite) => " READ WRITE",
        None => "",
    };
    format!("{level}; {NO_AUTOCOMMIT}; START TRANSACTION{access}; {MARK}")
}

/// Stores the error number of the last statement in a variable. This statement can't be prepared.
pub(crate) const KEEP_ERROR_NUMBER: &str =
    "GET DIAGNOSTICS CONDITION 1 @diesel_locks_errno = MYSQL_ERRNO";

statement! {
    Mysql;
    ErrorNumber {} -> Nullable<BigInt>,
    |self| { "SELECT CAST(@diesel_locks_errno AS SIGNED)" }

    RollbackOnTimeout {} -> BigInt,
    |self| { "SELECT @@GLOBAL.innodb_rollback_on_timeout" }

    AnyText {} -> Text,
    |self| { "SELECT 'any text'" }

    SessionState {} -> ((BigInt, Nullable<BigInt>), BigInt),
    |self| { "SELECT "; {ISOLATION_LEVEL}; ", "; {IN_TRANSACTION}; ", @@autocommit" }

    /// Limits the time of statements, which is the only time-out below a second. The hint MAX_EXECUTION_TIME and SET
    /// STATEMENT need no separate statement, but accept no bound values. On MySQL this limit does not apply to PREPARE,
    /// which waits for a locked table, nor to statements that write, so `lock_wait_timeout` (whole seconds) is set too.
    SetLimit { millis: i32, seconds: i32 } -> Integer,
    |self| {
        "SET @diesel_locks_limit = \
         /*!80000 @@SESSION.max_execution_time *//*M!100100 @@SESSION.max_statement_time */, \
         @diesel_locks_wait = @@SESSION.lock_wait_timeout, \
         SESSION lock_wait_timeout = ", Integer = &self.seconds;
        ", SESSION /*!80000 max_execution_time = *//*M!100100 max_statement_time = 0.001 * */ ",
        Integer = &self.millis;
    }

    /// Has no effect unless [`SetLimit`] has run. The casts, because MySQL does not know the type of a variable that is NULL.
    RestoreLimit {} -> Integer,
    |self| {
        "SET SESSION /*!80000 max_execution_time = CAST(COALESCE(@diesel_locks_limit, \
         @@SESSION.max_execution_time) AS UNSIGNED) *//*M!100100 max_statement_time = \
         COALESCE(@diesel_locks_limit, @@SESSION.max_statement_time) */, @diesel_locks_limit = NULL, \
         SESSION lock_wait_timeout = CAST(COALESCE(@diesel_locks_wait, @@SESSION.lock_wait_timeout) AS UNSIGNED), \
         @diesel_locks_wait = NULL";
    }
}

/// 1 if the session does not know that there is one writer.
pub(crate) const WRITER_UNKNOWN: &str = "COALESCE(@diesel_locks_one_writer, 0) <> 1";

/// 1 in a transaction, 0 outside; NULL on MySQL.
pub(crate) const IN_TRANSACTION: &str =
    "CAST(/*!80000 NULL *//*M!100100 @@in_transaction */ AS SIGNED)";

/// The session's isolation level, 1 to 4. A number, because a broken client library loses texts
/// (`Error::BrokenClientLibrary`). A level that `SET TRANSACTION` has set for one transaction is not visible without
/// the privilege PROCESS. MariaDB has had the newer name of the variable only since 11.1, and still has the older.
pub(crate) const ISOLATION_LEVEL: &str = "FIELD(/*!80000 @@SESSION.transaction_isolation *//*M!100100 @@SESSION.tx_isolation */, \
     'READ-UNCOMMITTED', 'READ-COMMITTED', 'REPEATABLE-READ', 'SERIALIZABLE')";

expression!(WriterUnknown -> BigInt, WRITER_UNKNOWN);

pub(crate) type Session = (i64, Option<i64>);

/// Limits a SELECT to 200 ms on MySQL, where it would otherwise wait without limit for a table that another session has
/// locked. With the effect of [`ANY_SIZE_HINT`]. A comment on MariaDB.
pub(crate) const LIMIT_HINT: &str = "/*+ MAX_EXECUTION_TIME(200) SET_VAR(sql_big_selects = 1) */ ";

/// A longer limit, for a search that [`LIMIT_HINT`] has ended although the table was not locked.
pub(crate) const LONG_LIMIT_HINT: &str =
    "/*+ MAX_EXECUTION_TIME(5000) SET_VAR(sql_big_selects = 1) */ ";

/// A statement prefix: on MariaDB the statement may read more rows than `max_join_size` of the session.
pub(crate) const ANY_SIZE: &str = "/*M!100100 SET STATEMENT sql_big_selects = 1 FOR */ ";

/// A hint for MySQL with the effect of [`ANY_SIZE`], after the first word of the statement.
pub(crate) const ANY_SIZE_HINT: &str = "/*+ SET_VAR(sql_big_selects = 1) */ ";

/// At the end of a SELECT: a limit that no result exceeds, in place of that of the session (`sql_select_limit`).
pub(crate) const EVERY_ROW: &str = " LIMIT 1000000";

/// A statement prefix for MariaDB, by which a statement works in a session with `sql_safe_updates`, which refuses each join
/// with a derived table, and in one with a small `max_join_size`, which refuses statements that read many rows.
pub(crate) const ANY_JOIN: &str =
    "/*M!100100 SET STATEMENT sql_safe_updates = 0, sql_big_selects = 1 FOR */ ";

/// A hint for MySQL with the effect of [`ANY_JOIN`].
pub(crate) const ANY_JOIN_HINT: &str =
    "/*+ SET_VAR(sql_safe_updates = 0) SET_VAR(sql_big_selects = 1) */ ";

/// A statement prefix: on MariaDB the statement fails at once if another session has locked the table (`LOCK TABLES`,
/// `ALTER TABLE`), and has the effect of [`ANY_SIZE`].
pub(crate) const UNLESS_TABLE_LOCKED: &str =
    "/*M!100100 SET STATEMENT lock_wait_timeout = 0, sql_big_selects = 1 FOR */ ";

/// [`UNLESS_TABLE_LOCKED`] and [`ANY_JOIN`].
pub(crate) const JOIN_UNLESS_TABLE_LOCKED: &str = "/*M!100100 SET STATEMENT lock_wait_timeout = 0, sql_safe_updates = 0, sql_big_selects = 1 FOR */ ";

/// An expression that is 0. A SELECT with it waits for a lock on the table of slots as an UPDATE does, but locks no row.
pub(crate) const AS_AN_UPDATE: &str =
    "IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + ";

/// [`AS_AN_UPDATE`] on MySQL, where only the session's time-out limits the wait of an UPDATE.
pub(crate) const AS_AN_UPDATE_ON_MYSQL: &str =
    "/*!80000 IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + */ ";

/// An expression that is 0. On MariaDB the transaction gets an id by it, before the statement locks rows: a transaction without an id
/// keeps rows locked in shared mode that the condition excludes, if none has changed them since the table was rebuilt.
pub(crate) const WITH_ID: &str = "/*M!100100 IFNULL((SELECT 0 FROM diesel_locks_slots WHERE name = x'00' AND number = 0 FOR UPDATE), 0) + */ ";
