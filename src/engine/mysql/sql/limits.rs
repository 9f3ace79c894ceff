//! Limits the time of statements.

use diesel::mysql::Mysql;
use diesel::sql_types::Integer;

use crate::engine::raw_sql::{push, statement};

/// Limits a SELECT to 200 ms on MySQL, where it would otherwise wait without limit for a table that another session has
/// locked. With the effect of [`ANY_SIZE_HINT`]. A comment on MariaDB.
pub(in crate::engine::mysql) const LIMIT_HINT: &str =
    "/*+ MAX_EXECUTION_TIME(200) SET_VAR(sql_big_selects = 1) */ ";

/// A longer limit, for a search that [`LIMIT_HINT`] has ended although the table was not locked.
pub(in crate::engine::mysql) const LONG_LIMIT_HINT: &str =
    "/*+ MAX_EXECUTION_TIME(5000) SET_VAR(sql_big_selects = 1) */ ";

/// A statement prefix: on MariaDB the statement may read more rows than `max_join_size` of the session.
pub(in crate::engine::mysql) const ANY_SIZE: &str =
    "/*M!100100 SET STATEMENT sql_big_selects = 1 FOR */ ";

/// A hint for MySQL with the effect of [`ANY_SIZE`], after the first word of the statement. A comment on MariaDB.
pub(in crate::engine::mysql) const ANY_SIZE_HINT: &str = "/*+ SET_VAR(sql_big_selects = 1) */ ";

/// At the end of a SELECT: a limit that no result exceeds. A SELECT without one has that of the session
/// (`sql_select_limit`).
pub(in crate::engine::mysql) const EVERY_ROW: &str = " LIMIT 1000000";

statement! {
    Mysql;
    /// Limits the time of statements, which is the only time-out below a second. The hint MAX_EXECUTION_TIME and SET
    /// STATEMENT need no separate statement, but accept no bound values. On MySQL this limit does not apply to PREPARE,
    /// which waits for a locked table, nor to statements that write, so `lock_wait_timeout` (whole seconds) is set too.
    SetLimit { millis: i32, seconds: i32 } -> Integer,
    |self, out| {
        push!(out;
            "SET @diesel_locks_limit = \
             /*!80000 @@SESSION.max_execution_time *//*M!100100 @@SESSION.max_statement_time */, \
             @diesel_locks_wait = @@SESSION.lock_wait_timeout, \
             SESSION lock_wait_timeout = ", Integer = &self.seconds;
            ", SESSION /*!80000 max_execution_time = *//*M!100100 max_statement_time = 0.001 * */ ",
                Integer = &self.millis;
        );
    }
}

statement! {
    Mysql;
    /// Restores the limits. Has no effect unless [`SetLimit`] has run before: the variables are NULL then. The casts,
    /// because MySQL does not know the type of a variable that is NULL.
    RestoreLimit {} -> Integer,
    |self, out| {
        push!(out;
            "SET SESSION /*!80000 max_execution_time = CAST(COALESCE(@diesel_locks_limit, \
             @@SESSION.max_execution_time) AS UNSIGNED) *//*M!100100 max_statement_time = \
             COALESCE(@diesel_locks_limit, @@SESSION.max_statement_time) */, @diesel_locks_limit = NULL, \
             SESSION lock_wait_timeout = CAST(COALESCE(@diesel_locks_wait, @@SESSION.lock_wait_timeout) AS UNSIGNED), \
             @diesel_locks_wait = NULL";
        );
    }
}
