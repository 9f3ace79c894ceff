//! Texts by which a statement works in a session with `sql_safe_updates`, which refuses each join with a derived table.

/// A statement prefix for MariaDB.
pub(in crate::engine::mysql) const ANY_JOIN: &str =
    "/*M!100100 SET STATEMENT sql_safe_updates = 0 FOR */ ";

/// A hint for MySQL, after the first word of the statement. A comment on MariaDB.
pub(in crate::engine::mysql) const ANY_JOIN_HINT: &str = "/*+ SET_VAR(sql_safe_updates = 0) */ ";
