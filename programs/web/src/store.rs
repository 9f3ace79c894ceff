//! The tables of documents, accounts and passes.
//!
//! The statements are the same for all databases, in Diesel's DSL, except for the type of ids: bytes on MySQL, whose
//! collations treat different texts as equal, and text elsewhere.

use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel_locks::{ObjectLockExt, SemaphoreExt, SequenceExt, TransactionExt};

mod asker;
mod pools;

pub(crate) use asker::{Asker, NoAnswer};
pub(crate) use pools::Pools;

/// Sets for how many milliseconds a transaction on PostgreSQL may do nothing.
#[cfg(any(feature = "postgres", test))]
pub(crate) const SET_IDLE_LIMIT: &str = "SET idle_in_transaction_session_timeout = 60000";

/// The id of the only row of settings.
const SETTINGS: i64 = 1;

/// A document as it is stored.
#[derive(Queryable)]
pub(crate) struct Document {
    /// Microseconds since 1970.
    pub(crate) changed_us: i64,
    pub(crate) body: Vec<u8>,
}

/// An account.
#[derive(Queryable)]
pub(crate) struct Account {
    pub(crate) id: i64,
    pub(crate) balance: i64,
}

pub(crate) trait Store:
    ObjectLockExt + SemaphoreExt + SequenceExt + TransactionExt + R2D2Connection + Send + 'static
{
    /// Whether `CREATE TABLE` is part of the transaction. MySQL commits before it.
    const TRANSACTIONAL_DDL: bool;

    /// Creates the tables if they are missing.
    fn create_tables(&mut self) -> QueryResult<()>;

    /// Sets up the session, before any other statement.
    fn configure_session(&mut self) -> QueryResult<()>;

    /// Limits how long a statement takes on a connection for health checks, the page and the operator: a table may be
    /// locked.
    fn limit_look(&mut self) -> QueryResult<()>;

    /// The name of the database and its version.
    fn engine(&mut self) -> QueryResult<String>;

    /// Microseconds since 1970 by the database's clock.
    fn now_us(&mut self) -> QueryResult<i64>;

    fn document(&mut self, id: &str) -> QueryResult<Option<Document>>;

    fn changed_us(&mut self, id: &str) -> QueryResult<Option<i64>>;

    fn insert_document(&mut self, id: &str, changed_us: i64, body: &[u8]) -> QueryResult<()>;

    fn update_document(&mut self, id: &str, changed_us: i64, body: &[u8]) -> QueryResult<()>;

    fn accounts(&mut self) -> QueryResult<Vec<Account>>;

    fn balance(&mut self, account: i64) -> QueryResult<Option<i64>>;

    fn set_balance(&mut self, account: i64, balance: i64) -> QueryResult<()>;

    fn insert_account(&mut self, account: i64, balance: i64) -> QueryResult<()>;

    fn insert_pass(&mut self, meeting: &str, number: i64) -> QueryResult<()>;

    /// The permits of each semaphore; `None` before the first instance has started.
    fn permits(&mut self) -> QueryResult<Option<i64>>;

    fn insert_permits(&mut self, permits: i64) -> QueryResult<()>;

    fn update_permits(&mut self, permits: i64) -> QueryResult<()>;
}

macro_rules! store {
    (
        $module:ident, $connection:ty,
        id: $sql_type:ident from $borrowed:ty,
        tables: $tables:literal, transactional: $transactional:literal,
        version: $version:literal as $named:expr,
        now_us: $now_us:literal,
        configure_session: |$conn:ident| $configure_session:expr,
        limit_look: [$($limit_look:literal),*] $(,)?
    ) => {
        mod $module {
            use diesel::connection::SimpleConnection;
            use diesel::dsl::sql;
            use diesel::prelude::*;
            use diesel::sql_types::{BigInt, Text};

            use super::{Account, Document, Store};

            diesel::table! {
                web_documents (id) {
                    id -> $sql_type,
                    changed_us -> BigInt,
                    body -> Binary,
                }
            }

            diesel::table! {
                web_accounts (id) {
                    id -> BigInt,
                    balance -> BigInt,
                }
            }

            diesel::table! {
                web_passes (meeting, number) {
                    meeting -> $sql_type,
                    number -> BigInt,
                }
            }

            diesel::table! {
                web_settings (id) {
                    id -> BigInt,
                    permits -> BigInt,
                }
            }

            /// An id as the column's type.
            fn key(id: &str) -> &$borrowed {
                id.as_ref()
            }

            impl Store for $connection {
                const TRANSACTIONAL_DDL: bool = $transactional;

                fn create_tables(&mut self) -> QueryResult<()> {
                    self.batch_execute(include_str!($tables))
                }

                fn configure_session(&mut self) -> QueryResult<()> {
                    let $conn = self;
                    $configure_session
                }

                fn limit_look(&mut self) -> QueryResult<()> {
                    let statements: &[&str] = &[$($limit_look),*];
                    statements.iter().try_for_each(|statement| self.batch_execute(statement))
                }

                // Diesel has no functions for the version and the clock.
                fn engine(&mut self) -> QueryResult<String> {
                    let version: String = diesel::select(sql::<Text>($version)).get_result(self)?;
                    let named: fn(&str) -> String = $named;
                    Ok(named(&version))
                }

                fn now_us(&mut self) -> QueryResult<i64> {
                    diesel::select(sql::<BigInt>($now_us)).get_result(self)
                }

                fn document(&mut self, id: &str) -> QueryResult<Option<Document>> {
                    web_documents::table
                        .find(key(id))
                        .select((web_documents::changed_us, web_documents::body))
                        .first(self)
                        .optional()
                }

                fn changed_us(&mut self, id: &str) -> QueryResult<Option<i64>> {
                    web_documents::table
                        .find(key(id))
                        .select(web_documents::changed_us)
                        .first(self)
                        .optional()
                }

                fn insert_document(&mut self, id: &str, changed_us: i64, body: &[u8]) -> QueryResult<()> {
                    diesel::insert_into(web_documents::table)
                        .values((
                            web_documents::id.eq(key(id)),
                            web_documents::changed_us.eq(changed_us),
                            web_documents::body.eq(body),
                        ))
                        .execute(self)?;
                    Ok(())
                }

                fn update_document(&mut self, id: &str, changed_us: i64, body: &[u8]) -> QueryResult<()> {
                    diesel::update(web_documents::table.find(key(id)))
                        .set((
                            web_documents::changed_us.eq(changed_us),
                            web_documents::body.eq(body),
                        ))
                        .execute(self)?;
                    Ok(())
                }

                fn accounts(&mut self) -> QueryResult<Vec<Account>> {
                    web_accounts::table.order(web_accounts::id).load(self)
                }

                fn balance(&mut self, account: i64) -> QueryResult<Option<i64>> {
                    web_accounts::table
                        .find(account)
                        .select(web_accounts::balance)
                        .first(self)
                        .optional()
                }

                fn set_balance(&mut self, account: i64, balance: i64) -> QueryResult<()> {
                    diesel::update(web_accounts::table.find(account))
                        .set(web_accounts::balance.eq(balance))
                        .execute(self)?;
                    Ok(())
                }

                fn insert_account(&mut self, account: i64, balance: i64) -> QueryResult<()> {
                    diesel::insert_into(web_accounts::table)
                        .values((web_accounts::id.eq(account), web_accounts::balance.eq(balance)))
                        .execute(self)?;
                    Ok(())
                }

                fn insert_pass(&mut self, meeting: &str, number: i64) -> QueryResult<()> {
                    diesel::insert_into(web_passes::table)
                        .values((web_passes::meeting.eq(key(meeting)), web_passes::number.eq(number)))
                        .execute(self)?;
                    Ok(())
                }

                fn permits(&mut self) -> QueryResult<Option<i64>> {
                    web_settings::table
                        .find(super::SETTINGS)
                        .select(web_settings::permits)
                        .first(self)
                        .optional()
                }

                fn insert_permits(&mut self, permits: i64) -> QueryResult<()> {
                    diesel::insert_into(web_settings::table)
                        .values((web_settings::id.eq(super::SETTINGS), web_settings::permits.eq(permits)))
                        .execute(self)?;
                    Ok(())
                }

                fn update_permits(&mut self, permits: i64) -> QueryResult<()> {
                    diesel::update(web_settings::table.find(super::SETTINGS))
                        .set(web_settings::permits.eq(permits))
                        .execute(self)?;
                    Ok(())
                }
            }
        }
    };
}

store!(
    sqlite, SqliteConnection,
    id: Text from str,
    tables: "store/sqlite.sql", transactional: true,
    version: "sqlite_version()" as |version| format!("SQLite {version}"),
    now_us: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
    configure_session: |conn| {
        diesel_locks::operation::sqlite::prepare(conn)?;
        conn.batch_execute("PRAGMA synchronous = NORMAL")
    },
    limit_look: [],
);

// A client that vanishes holds its locks until the server ends its session.
#[cfg(feature = "postgres")]
store!(
    postgres, PgConnection,
    id: Text from str,
    tables: "store/postgres.sql", transactional: true,
    version: "current_setting('server_version')"
        as |version| format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()),
    now_us: "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
    configure_session: |conn| {
        conn.batch_execute("SET lock_timeout = '10s'")?;
        conn.batch_execute(super::SET_IDLE_LIMIT)
    },
    limit_look: ["SET statement_timeout = '5s'"],
);

#[cfg(feature = "mysql")]
store!(
    mysql, MysqlConnection,
    id: Binary from [u8],
    tables: "store/mysql.sql", transactional: false,
    version: "version()" as |version| match version.split_once("-MariaDB") {
        Some((number, _)) => format!("MariaDB {number}"),
        None => format!("MySQL {version}"),
    },
    now_us: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    configure_session: |conn| {
        conn.batch_execute(
            "SET SESSION innodb_lock_wait_timeout = 10, SESSION net_read_timeout = 30, \
             SESSION net_write_timeout = 30",
        )
    },
    // The first is for locks of tables. The others are for all that a look does, on MariaDB and on MySQL.
    limit_look: [
        "SET SESSION lock_wait_timeout = 5 /*M! , max_statement_time = 5 */ /*!50708 , max_execution_time = 5000 */"
    ],
);
