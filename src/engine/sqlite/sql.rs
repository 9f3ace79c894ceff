//! SQLite's statements for transactions and object locks.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;
use diesel::sqlite::Sqlite;

use crate::schema::sqlite::diesel_locks_objects::{self, dsl};
use diesel::dsl::{delete, insert_or_ignore_into};

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

/// The connection's `busy_timeout` in milliseconds. Raw, because the DSL has no PRAGMA.
#[derive(QueryId)]
pub(super) struct BusyTimeout;

impl QueryFragment<Sqlite> for BusyTimeout {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("PRAGMA busy_timeout");
        Ok(())
    }
}

impl Query for BusyTimeout {
    type SqlType = Integer;
}

impl RunQueryDsl<SqliteConnection> for BusyTimeout {}

/// Not 0 when the connection may only read.
#[derive(QueryId)]
pub(super) struct QueryOnly;

impl QueryFragment<Sqlite> for QueryOnly {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("PRAGMA query_only");
        Ok(())
    }
}

impl Query for QueryOnly {
    type SqlType = Integer;
}

impl RunQueryDsl<SqliteConnection> for QueryOnly {}

/// The value is written as hexadecimal digits, because a PRAGMA has no bound values.
pub(super) fn set_busy_timeout(millis: i32) -> String {
    format!("PRAGMA busy_timeout = 0x{millis:x}")
}
