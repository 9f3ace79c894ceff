//! The statements for transactions and object locks on MySQL and MariaDB.
//!
//! One text serves both: MySQL runs the text in `/*!80000 .. */`, MariaDB the text in `/*M!100100 .. */`, and the other
//! is a comment.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use crate::TransactionOptions;
use crate::engine::raw_sql::statement;
use crate::transaction::options::Access;

pub(super) mod free_objects;
pub(super) mod limits;
pub(super) mod object_lock;
pub(super) mod safe_updates;
pub(super) mod session_state;

/// Sent before BEGIN of a transaction in which a closure runs.
///
/// InnoDB ends the whole transaction when it breaks a deadlock with it, and with autocommit each later statement of the
/// closure would commit by itself. Without autocommit they form another transaction, which this crate rolls back.
macro_rules! no_autocommit {
    () => {
        "SET @diesel_locks_autocommit = COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit + 0), \
         SESSION autocommit = 0; "
    };
}

/// Restores autocommit. Sent after the end of the transaction, because it would commit an open one. Changes nothing if
/// `no_autocommit` has not run. With the CAST, because MySQL takes a variable without a value for a text, and refuses texts
/// (error 1231).
macro_rules! autocommit {
    () => {
        "SET SESSION autocommit = CAST(COALESCE(@diesel_locks_autocommit, @@SESSION.autocommit + 0) AS SIGNED), \
         @diesel_locks_autocommit = NULL"
    };
}

/// Sent after BEGIN: a savepoint by which [`COMMIT`] recognises the transaction.
macro_rules! mark {
    () => {
        "; SAVEPOINT diesel_locks_started"
    };
}

/// Error 1568 in a transaction that the application has begun by its own SQL, before anything has changed. So it is sent
/// first.
macro_rules! read_committed {
    () => {
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
    };
}

/// READ COMMITTED for this transaction only: InnoDB locks no gap beside the row, and the closure reads what the last holder
/// committed. START TRANSACTION, because MariaDB takes BEGIN for that of a block if `sql_mode` is ORACLE.
pub(super) const BEGIN: &str = concat!(read_committed!(), "START TRANSACTION");

/// [`BEGIN`] for a transaction in which a closure runs.
pub(super) const BEGIN_MARKED: &str = concat!(
    read_committed!(),
    no_autocommit!(),
    "START TRANSACTION",
    mark!()
);

/// The beginning of [`BEGIN_MARKED`], and the rest of it.
const READ_COMMITTED: &str = read_committed!();
const BEGIN_MARKED_AT_LEVEL: &str = concat!(no_autocommit!(), "START TRANSACTION", mark!());

/// Error 1568 in a transaction that the application has begun by its own SQL. Has no other effect: the next transaction
/// would have the access mode of the session anyway. MariaDB has had the newer name of the variable only since 11.1.
pub(super) const ASSERT_NO_TRANSACTION: &str = "SET /*!80000 @@transaction_read_only = @@SESSION.transaction_read_only */\
     /*M!100100 @@tx_read_only = @@SESSION.tx_read_only */";

/// RELEASE fails, and COMMIT is not run, if no transaction or another one is open.
pub(super) const COMMIT: &str = concat!(
    "RELEASE SAVEPOINT diesel_locks_started; COMMIT; ",
    autocommit!()
);

/// RELEASE fails, and ROLLBACK is not run, if no transaction or another one is open.
pub(super) const ROLLBACK_STARTED: &str = concat!(
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
    let mut sql = match transaction.isolation {
        Some(level) => format!("SET TRANSACTION ISOLATION LEVEL {}", level.sql()),
        None => ASSERT_NO_TRANSACTION.to_owned(),
    };
    sql.push_str("; ");
    sql.push_str(no_autocommit!());
    sql.push_str(match transaction.access {
        Some(Access::ReadOnly) => "START TRANSACTION READ ONLY",
        Some(Access::ReadWrite) => "START TRANSACTION READ WRITE",
        None => "START TRANSACTION",
    });
    sql.push_str(mark!());
    sql
}

/// Stores the error number of the last statement in a variable. This statement can't be prepared.
pub(super) const KEEP_ERROR_NUMBER: &str =
    "GET DIAGNOSTICS CONDITION 1 @diesel_locks_errno = MYSQL_ERRNO";

statement! {
    Mysql;
    /// Acquires the named lock under which one session at a time migrates this database.
    AcquireMigrationLock { seconds: i32 } -> Nullable<BigInt>,
    |self, out| {
        out.push_sql("SELECT GET_LOCK(CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224)), ");
        out.push_bind_param::<Integer, _>(&self.seconds)?;
        out.push_sql(")");
    }
}

pub(super) const RELEASE_MIGRATION_LOCK: &str =
    "DO RELEASE_LOCK(CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224)))";

statement! {
    Mysql;
    ErrorNumber {} -> Nullable<BigInt>,
    |self, out| {
        out.push_sql("SELECT CAST(@diesel_locks_errno AS SIGNED)");
    }
}

statement! {
    Mysql;
    /// Reads 1 if the time-out of a lock wait rolls back the whole transaction.
    RollbackOnTimeout {} -> BigInt,
    |self, out| {
        out.push_sql("SELECT @@GLOBAL.innodb_rollback_on_timeout");
    }
}

statement! {
    Mysql;
    /// Any text.
    AnyText {} -> Text,
    |self, out| {
        out.push_sql("SELECT 'any text'");
    }
}
