//! What is sent to SQLite.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;
use diesel::sqlite::Sqlite;

use crate::schema::sqlite::diesel_locks_objects::{self, dsl};
use diesel::dsl::{delete, insert_or_ignore_into};

/// The savepoint tells the transaction apart from one that an application's COMMIT and BEGIN put in its
/// place.
pub(super) const BEGIN: &str = "BEGIN; SAVEPOINT diesel_locks_started";
pub(super) const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE; SAVEPOINT diesel_locks_started";
pub(super) const COMMIT: &str = "RELEASE diesel_locks_started; COMMIT";
pub(super) const ROLLBACK: &str = "RELEASE diesel_locks_started; ROLLBACK";

/// An error in a transaction that has read or written, or was to write from its beginning.
pub(super) const CHECKPOINT: &str = "PRAGMA main.wal_checkpoint";

/// A write that finds nothing: it takes the lock on the database and leaves every page clean, so that
/// a transaction without other writes has nothing to sync.
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

/// The connection's `busy_timeout` in milliseconds. A pragma, for which the DSL has no words.
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

/// Whether the connection may only read.
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

/// A pragma takes no bound values: hexadecimal digits.
pub(super) fn set_busy_timeout(millis: i32) -> String {
    format!("PRAGMA busy_timeout = 0x{millis:x}")
}
