//! The tables of documents, accounts and passes, and connections to their database.

use std::time::Duration;

use anyhow::{Context, Result};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as R2d2Error, Pool};
use diesel_locks::ObjectLockExt;
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};

mod asker;

pub(crate) use asker::{Asker, NoAnswer};

pub(crate) type Connections = Pool<ConnectionManager<AnyConnection>>;

/// The accounts, each with `FIRST_BALANCE` to begin with.
const ACCOUNTS: i64 = 10;

const FIRST_BALANCE: i64 = 1000;

diesel::table! {
    web_documents (id) {
        id -> Text,
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
        meeting -> Text,
        number -> BigInt,
    }
}

/// A document as it is stored.
#[derive(Queryable)]
pub(crate) struct Document {
    /// Microseconds since 1970.
    pub(crate) changed_us: i64,
    pub(crate) body: Vec<u8>,
}

/// Texts of clients are bytes on MySQL, whose collations treat different texts as equal.
fn tables(engine: Engine) -> String {
    let (text, bytes) = match engine {
        Engine::Sqlite => ("TEXT", "BLOB"),
        Engine::Postgres => ("TEXT", "BYTEA"),
        Engine::Mysql => ("VARBINARY(1020)", "LONGBLOB"),
    };
    format!(
        "CREATE TABLE IF NOT EXISTS web_documents (
            id {text} NOT NULL PRIMARY KEY,
            changed_us BIGINT NOT NULL,
            body {bytes} NOT NULL
        );
        CREATE TABLE IF NOT EXISTS web_accounts (
            id BIGINT NOT NULL PRIMARY KEY,
            balance BIGINT NOT NULL
        );
        CREATE TABLE IF NOT EXISTS web_passes (
            meeting {text} NOT NULL,
            number BIGINT NOT NULL,
            PRIMARY KEY (meeting, number)
        )"
    )
}

/// Creates the tables and accounts that are missing. Several instances may start at the same time.
pub(crate) fn set_up(database: &Database) -> Result<()> {
    let mut conn = connect(database)?;
    diesel_locks::migrate(&mut conn)?;
    let tables = tables(database.engine);
    let create_tables = |conn: &mut AnyConnection| {
        conn.batch_execute(&tables)
            .context("can't create the tables")
    };
    // MySQL commits before it creates a table. PostgreSQL fails if two instances create one at the same time.
    let is_mysql = database.engine == Engine::Mysql;
    if is_mysql {
        create_tables(&mut conn)?;
    }
    conn.with_object_lock("web:set-up", |conn| {
        if !is_mysql {
            create_tables(conn)?;
        }
        for account in 1..=ACCOUNTS {
            if balance(conn, account)?.is_none() {
                insert_account(conn, account, FIRST_BALANCE)?;
            }
        }
        Ok(())
    })
}

/// A pool that opens a connection when one is needed.
pub(crate) fn pool(database: &Database, size: u32, timeout: Duration) -> Result<Connections> {
    Pool::builder()
        .max_size(size)
        .min_idle(Some(0))
        .connection_timeout(timeout)
        .connection_customizer(Box::new(Session))
        .build(ConnectionManager::new(&database.url))
        .context("can't create a pool")
}

/// A connection outside of the pools, whose error names its cause.
fn connect(database: &Database) -> Result<AnyConnection> {
    let mut conn = AnyConnection::open(database)?;
    set_up_session(&mut conn)?;
    Ok(conn)
}

/// Limits waits: a client that vanishes holds its locks until the server ends its session.
fn set_up_session(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(conn) => {
            diesel_locks::operation::sqlite::prepare(conn)?;
            conn.batch_execute("PRAGMA synchronous = NORMAL")
        }
        // Idle for longer than a request may hold a lock.
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => conn.batch_execute(
            "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'",
        ),
        #[cfg(feature = "mysql")]
        AnyConnection::Mysql(conn) => conn.batch_execute(
            "SET SESSION innodb_lock_wait_timeout = 10, SESSION net_read_timeout = 30, \
             SESSION net_write_timeout = 30",
        ),
    }
}

/// Sets up each connection of a pool.
#[derive(Debug)]
struct Session;

impl CustomizeConnection<AnyConnection, R2d2Error> for Session {
    fn on_acquire(&self, conn: &mut AnyConnection) -> Result<(), R2d2Error> {
        set_up_session(conn).map_err(R2d2Error::QueryError)
    }
}

pub(crate) fn document(conn: &mut AnyConnection, id: &str) -> QueryResult<Option<Document>> {
    let document = web_documents::table.find(id);
    let columns = (web_documents::changed_us, web_documents::body);
    document.select(columns).first(conn).optional()
}

pub(crate) fn changed_us(conn: &mut AnyConnection, id: &str) -> QueryResult<Option<i64>> {
    let document = web_documents::table.find(id);
    document
        .select(web_documents::changed_us)
        .first(conn)
        .optional()
}

pub(crate) fn insert_document(
    conn: &mut AnyConnection,
    id: &str,
    changed_us: i64,
    body: &[u8],
) -> QueryResult<usize> {
    diesel::insert_into(web_documents::table)
        .values((
            web_documents::id.eq(id),
            web_documents::changed_us.eq(changed_us),
            web_documents::body.eq(body),
        ))
        .execute(conn)
}

pub(crate) fn update_document(
    conn: &mut AnyConnection,
    id: &str,
    changed_us: i64,
    body: &[u8],
) -> QueryResult<usize> {
    diesel::update(web_documents::table.find(id))
        .set((
            web_documents::changed_us.eq(changed_us),
            web_documents::body.eq(body),
        ))
        .execute(conn)
}

/// The accounts with their balances.
pub(crate) fn accounts(conn: &mut AnyConnection) -> QueryResult<Vec<(i64, i64)>> {
    web_accounts::table.order(web_accounts::id).load(conn)
}

pub(crate) fn balance(conn: &mut AnyConnection, account: i64) -> QueryResult<Option<i64>> {
    let account = web_accounts::table.find(account);
    account.select(web_accounts::balance).first(conn).optional()
}

pub(crate) fn set_balance(
    conn: &mut AnyConnection,
    account: i64,
    balance: i64,
) -> QueryResult<usize> {
    diesel::update(web_accounts::table.find(account))
        .set(web_accounts::balance.eq(balance))
        .execute(conn)
}

fn insert_account(conn: &mut AnyConnection, account: i64, balance: i64) -> QueryResult<usize> {
    diesel::insert_into(web_accounts::table)
        .values((
            web_accounts::id.eq(account),
            web_accounts::balance.eq(balance),
        ))
        .execute(conn)
}

pub(crate) fn insert_pass(
    conn: &mut AnyConnection,
    meeting: &str,
    number: i64,
) -> QueryResult<usize> {
    diesel::insert_into(web_passes::table)
        .values((
            web_passes::meeting.eq(meeting),
            web_passes::number.eq(number),
        ))
        .execute(conn)
}
