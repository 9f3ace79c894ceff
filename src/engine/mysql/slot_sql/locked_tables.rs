//! Texts by which a statement does not wait for a table that another session has locked.

/// A statement prefix: on MariaDB the statement fails at once if another session has locked the table (`LOCK TABLES`,
/// `ALTER TABLE`), and has the effect of [`ANY_SIZE`](crate::engine::mysql::sql::limits::ANY_SIZE).
pub(super) const UNLESS_TABLE_LOCKED: &str =
    "/*M!100100 SET STATEMENT lock_wait_timeout = 0, sql_big_selects = 1 FOR */ ";

/// [`UNLESS_TABLE_LOCKED`] and [`ANY_JOIN`](crate::engine::mysql::sql::safe_updates::ANY_JOIN).
pub(super) const JOIN_UNLESS_TABLE_LOCKED: &str = "/*M!100100 SET STATEMENT lock_wait_timeout = 0, sql_safe_updates = 0, sql_big_selects = 1 FOR */ ";

/// An expression that is 0. A SELECT with it waits for a lock on the table of slots as an UPDATE or INSERT does, but
/// locks no row.
pub(super) const AS_AN_UPDATE: &str =
    "IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + ";

/// [`AS_AN_UPDATE`] on MySQL, where only the session's time-out limits the wait of an UPDATE.
pub(super) const AS_AN_UPDATE_ON_MYSQL: &str =
    "/*!80000 IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + */ ";
