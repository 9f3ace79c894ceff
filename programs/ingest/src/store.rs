//! The table of stored documents, and its statements.

use chrono::NaiveDateTime;
use diesel::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Engine;

use self::ingest_documents::{dsl, table};
use crate::document::{Document, Version};

/// Creates the table if it is missing.
pub(crate) fn create_table(conn: &mut AnyConnection) -> anyhow::Result<()> {
    let statements = match conn.engine() {
        Engine::Sqlite => include_str!("store/sqlite.sql"),
        Engine::Postgres => include_str!("store/postgres.sql"),
        Engine::Mysql => include_str!("store/mysql.sql"),
    };
    conn.create_tables(statements)
}

diesel::table! {
    ingest_documents (seq) {
        seq -> BigInt,
        /// Bytes on MySQL, whose collations treat different texts as equal.
        id -> Text,
        timestamp -> Timestamp,
        digest -> Binary,
        body -> Binary,
    }
}

/// A row as the check reads it.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) body: Vec<u8>,
}

/// The row and the version of an id.
pub(crate) fn registered(
    conn: &mut AnyConnection,
    id: &str,
) -> QueryResult<Option<(i64, Version)>> {
    table
        .filter(dsl::id.eq(id))
        .select((dsl::seq, (dsl::timestamp, dsl::digest)))
        .first(conn)
        .optional()
}

pub(crate) fn insert(conn: &mut AnyConnection, document: &Document) -> QueryResult<usize> {
    diesel::insert_into(table)
        .values((
            dsl::id.eq(&document.id),
            dsl::timestamp.eq(document.version.timestamp),
            dsl::digest.eq(document.version.digest.as_slice()),
            dsl::body.eq(document.body.as_slice()),
        ))
        .execute(conn)
}

pub(crate) fn update(
    conn: &mut AnyConnection,
    seq: i64,
    document: &Document,
) -> QueryResult<usize> {
    diesel::update(table.filter(dsl::seq.eq(seq)))
        .set((
            dsl::timestamp.eq(document.version.timestamp),
            dsl::digest.eq(document.version.digest.as_slice()),
            dsl::body.eq(document.body.as_slice()),
        ))
        .execute(conn)
}

/// The number of rows that are read at a time.
const PAGE: i64 = 1000;

pub(crate) fn all_rows(conn: &mut AnyConnection) -> QueryResult<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let last = rows.last().map_or(0, |row| row.seq);
        let page: Vec<Row> = table
            .filter(dsl::seq.gt(last))
            .order(dsl::seq)
            .limit(PAGE)
            .select((dsl::seq, dsl::id, dsl::timestamp, dsl::body))
            .load(conn)?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
    }
}
