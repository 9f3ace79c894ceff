//! SQLite's statements for transactions and object locks.

use diesel::dsl::{delete, insert_or_ignore_into};
use diesel::prelude::*;
use diesel::sql_types::Integer;
use diesel::sqlite::Sqlite;

use crate::engine::raw_sql::statement;
use crate::schema::sqlite::diesel_locks_objects::{self, dsl};

/// The savepoint distinguishes the transaction from one that replaced it when the application sent COMMIT and BEGIN.
pub(super) const BEGIN: &str = "BEGIN; SAVEPOINT diesel_locks_started";
pub(super) const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE; SAVEPOINT diesel_locks_started";
pub(super) const COMMIT: &str = "RELEASE diesel_locks_started; COMMIT";
pub(super) const ROLLBACK: &str = "RELEASE diesel_locks_started; ROLLBACK";

/// Fails in a transaction that has read or written, or that started with the write lock.
pub(super) const CHECKPOINT: &str = "PRAGMA main.wal_checkpoint";

/// A DELETE without matching rows: it acquires the write lock and changes no page, so that a transaction without other
/// writes has nothing to sync.
#[diesel::dsl::auto_type]
pub(super) fn upgrade_to_writer() -> _ {
    delete(diesel_locks_objects::table.filter(dsl::id.eq("")))
}

#[diesel::dsl::auto_type]
pub(super) fn insert_kept<'a>(id: &'a str) -> _ {
    insert_or_ignore_into(diesel_locks_objects::table).values((dsl::id.eq(id), dsl::kept.eq(true)))
}

#[diesel::dsl::auto_type]
pub(super) fn delete_kept() -> _ {
    delete(diesel_locks_objects::table.filter(dsl::kept))
}

statement! {
    Sqlite;
    /// The connection's `busy_timeout` in milliseconds. Raw, because the DSL has no PRAGMA.
    BusyTimeout {} -> Integer,
    |self, out| {
        out.push_sql("PRAGMA busy_timeout");
    }
}

statement! {
    Sqlite;
    /// Not 0 when the connection may only read.
    QueryOnly {} -> Integer,
    |self, out| {
        out.push_sql("PRAGMA query_only");
    }
}

/// The value is written as hexadecimal digits, because a PRAGMA has no bound values.
pub(super) fn set_busy_timeout(millis: i32) -> String {
    format!("PRAGMA busy_timeout = 0x{millis:x}")
}
