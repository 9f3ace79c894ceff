//! The table of stored documents.
//!
//! All databases have the same statements, in Diesel's DSL, except for the type of the id: bytes on MySQL, whose
//! collations treat different texts as equal, and text elsewhere.

use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel_locks::ObjectLockExt;

use crate::document::{Document, Version};

/// The part of an id's row that is compared with another version.
#[derive(Queryable)]
pub(crate) struct Registered {
    pub(crate) seq: i64,
    pub(crate) version: Version,
}

/// A whole row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) body: Vec<u8>,
    pub(crate) generated: bool,
}

/// A [`Row`] with the id as stored in the database.
type Stored<Id> = (i64, Id, NaiveDateTime, Vec<u8>, bool);

pub(crate) trait Store: ObjectLockExt + R2D2Connection + 'static {
    /// The name of the database in the output.
    const NAME: &'static str;

    /// Creates the table if it is missing.
    fn create_table(&mut self) -> QueryResult<()>;

    /// Sets up the session, before any other statement.
    fn configure_session(&mut self) -> QueryResult<()>;

    fn registered(&mut self, id: &str) -> QueryResult<Option<Registered>>;

    fn insert(&mut self, document: &Document, generated: bool) -> QueryResult<usize>;

    fn update(&mut self, seq: i64, document: &Document) -> QueryResult<usize>;

    /// The next rows, in the order of `seq`.
    fn rows_after(&mut self, seq: i64, limit: i64) -> QueryResult<Vec<Row>>;

    fn delete_all(&mut self) -> QueryResult<usize>;

    fn delete_generated(&mut self) -> QueryResult<usize>;
}

macro_rules! store {
    (
        $module:ident, $connection:ty, $name:literal,
        id: $sql_type:ident from $borrowed:ty,
        table: $table:literal,
        configure_session: [$($configure_session:literal),*] $(,)?
    ) => {
        mod $module {
            use diesel::connection::SimpleConnection;
            use diesel::prelude::*;

            use super::{Document, Registered, Row, Store, Stored};

            diesel::table! {
                ingest_documents (seq) {
                    seq -> BigInt,
                    id -> $sql_type,
                    timestamp -> Timestamp,
                    digest -> Binary,
                    body -> Binary,
                    generated -> Bool,
                }
            }
            use ingest_documents::{dsl, table};

            impl Store for $connection {
                const NAME: &'static str = $name;

                fn create_table(&mut self) -> QueryResult<()> {
                    self.batch_execute(include_str!($table))
                }

                fn configure_session(&mut self) -> QueryResult<()> {
                    let statements: &[&str] = &[$($configure_session),*];
                    statements.iter().try_for_each(|statement| self.batch_execute(statement))
                }

                fn registered(&mut self, id: &str) -> QueryResult<Option<Registered>> {
                    table
                        .filter(dsl::id.eq(AsRef::<$borrowed>::as_ref(id)))
                        .select((dsl::seq, (dsl::timestamp, dsl::digest)))
                        .first(self)
                        .optional()
                }

                fn insert(&mut self, document: &Document, generated: bool) -> QueryResult<usize> {
                    diesel::insert_into(table)
                        .values((
                            dsl::id.eq(AsRef::<$borrowed>::as_ref(&document.id)),
                            dsl::timestamp.eq(document.version.timestamp),
                            dsl::digest.eq(document.version.digest.as_slice()),
                            dsl::body.eq(document.body.as_slice()),
                            dsl::generated.eq(generated),
                        ))
                        .execute(self)
                }

                fn update(&mut self, seq: i64, document: &Document) -> QueryResult<usize> {
                    diesel::update(table.filter(dsl::seq.eq(seq)))
                        .set((
                            dsl::timestamp.eq(document.version.timestamp),
                            dsl::digest.eq(document.version.digest.as_slice()),
                            dsl::body.eq(document.body.as_slice()),
                        ))
                        .execute(self)
                }

                fn rows_after(&mut self, seq: i64, limit: i64) -> QueryResult<Vec<Row>> {
                    let rows: Vec<Stored<<$borrowed as ToOwned>::Owned>> = table
                        .filter(dsl::seq.gt(seq))
                        .order(dsl::seq)
                        .limit(limit)
                        .select((dsl::seq, dsl::id, dsl::timestamp, dsl::body, dsl::generated))
                        .load(self)?;
                    Ok(rows.into_iter().map(Row::from).collect())
                }

                fn delete_all(&mut self) -> QueryResult<usize> {
                    diesel::delete(table).execute(self)
                }

                fn delete_generated(&mut self) -> QueryResult<usize> {
                    diesel::delete(table.filter(dsl::generated)).execute(self)
                }
            }
        }
    };
}

store!(
    sqlite, SqliteConnection, "sqlite",
    id: Text from str,
    table: "store/sqlite.sql",
    configure_session: ["PRAGMA busy_timeout = 10000", "PRAGMA synchronous = NORMAL"],
);

#[cfg(feature = "postgres")]
store!(
    postgres, PgConnection, "postgres",
    id: Text from str,
    table: "store/postgres.sql",
    configure_session: [],
);

#[cfg(feature = "mysql")]
store!(
    mysql, MysqlConnection, "mysql",
    id: Binary from [u8],
    table: "store/mysql.sql",
    configure_session: [],
);

impl<Id: Into<Vec<u8>>> From<Stored<Id>> for Row {
    fn from((seq, id, timestamp, body, generated): Stored<Id>) -> Self {
        // This program stores only ids that are text.
        let id = String::from_utf8_lossy(&id.into()).into_owned();
        Self {
            seq,
            id,
            timestamp,
            body,
            generated,
        }
    }
}
