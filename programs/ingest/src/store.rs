//! The table of stored documents, and its statements.

use chrono::NaiveDateTime;
use diesel::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Engine;

use self::ingest_documents::{dsl, table};
use crate::document::{Document, Version};

/// The statements that create the table.
pub(crate) const TABLES: [(Engine, &str); 3] = [
    (Engine::Sqlite, include_str!("store/sqlite.sql")),
    (Engine::Postgres, include_str!("store/postgres.sql")),
    (Engine::Mysql, include_str!("store/mysql.sql")),
];

diesel::table! {
    ingest_documents (seq) {
        seq -> BigInt,
        /// Bytes on MySQL, whose collations treat different texts as equal.
        id -> Text,
        timestamp -> Timestamp,
        digest -> Binary,
        body -> Binary,
        generated -> Bool,
    }
}

/// The part of an id's row that is compared with another version.
#[derive(Queryable)]
pub(crate) struct Registered {
    pub(crate) seq: i64,
    pub(crate) version: Version,
}

/// A whole row.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) body: Vec<u8>,
    pub(crate) generated: bool,
}

pub(crate) fn registered(conn: &mut AnyConnection, id: &str) -> QueryResult<Option<Registered>> {
    table
        .filter(dsl::id.eq(id))
        .select((dsl::seq, (dsl::timestamp, dsl::digest)))
        .first(conn)
        .optional()
}

pub(crate) fn insert(
    conn: &mut AnyConnection,
    document: &Document,
    generated: bool,
) -> QueryResult<usize> {
    diesel::insert_into(table)
        .values((
            dsl::id.eq(&document.id),
            dsl::timestamp.eq(document.version.timestamp),
            dsl::digest.eq(document.version.digest.as_slice()),
            dsl::body.eq(document.body.as_slice()),
            dsl::generated.eq(generated),
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

/// The next rows, in the order of `seq`.
pub(crate) fn rows_after(conn: &mut AnyConnection, seq: i64, limit: i64) -> QueryResult<Vec<Row>> {
    table
        .filter(dsl::seq.gt(seq))
        .order(dsl::seq)
        .limit(limit)
        .select((dsl::seq, dsl::id, dsl::timestamp, dsl::body, dsl::generated))
        .load(conn)
}

pub(crate) fn delete_all(conn: &mut AnyConnection) -> QueryResult<usize> {
    diesel::delete(table).execute(conn)
}

pub(crate) fn delete_generated(conn: &mut AnyConnection) -> QueryResult<usize> {
    diesel::delete(table.filter(dsl::generated)).execute(conn)
}
