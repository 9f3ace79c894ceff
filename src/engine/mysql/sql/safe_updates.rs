//! Texts by which a statement works in a session with `sql_safe_updates`, which refuses each join with a derived table,
//! and in one with a small `max_join_size`, which refuses statements that read many rows.

/// A statement prefix for MariaDB.
pub(in crate::engine::mysql) const ANY_JOIN: &str =
    "/*M!100100 SET STATEMENT sql_safe_updates = 0, sql_big_selects = 1 FOR */ ";

/// A hint for MySQL, after the first word of the statement. A comment on MariaDB.
pub(in crate::engine::mysql) const ANY_JOIN_HINT: &str =
    "/*+ SET_VAR(sql_safe_updates = 0) SET_VAR(sql_big_selects = 1) */ ";
