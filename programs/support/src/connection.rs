//! The connection of a program that works on each engine: an application's enum.
#![allow(missing_docs, reason = "of what Diesel derives")]

use anyhow::{Context, Result};
#[cfg(feature = "mysql")]
use diesel::MysqlConnection;
#[cfg(feature = "postgres")]
use diesel::PgConnection;
use diesel::connection::{
    AnsiTransactionManager, Connection, SimpleConnection, TransactionManager,
};
use diesel::{QueryResult, SqliteConnection};
use diesel_locks::{ConnectionWrapper, InnerConnection};

use crate::database::{Database, Engine};

/// A connection to a [`Database`].
#[derive(diesel::MultiConnection)]
pub enum AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
    #[cfg(feature = "mysql")]
    Mysql(MysqlConnection),
    Sqlite(SqliteConnection),
}

impl ConnectionWrapper for AnyConnection {
    fn inner_connection(&mut self) -> InnerConnection<'_> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(conn) => conn.into(),
            #[cfg(feature = "mysql")]
            Self::Mysql(conn) => conn.into(),
            Self::Sqlite(conn) => conn.into(),
        }
    }
}

impl AnyConnection {
    /// Connects. On SQLite, statements wait for 60 s while another connection writes.
    pub fn open(database: &Database) -> Result<Self> {
        let url = database.url.as_str();
        let connected = match database.engine {
            #[cfg(feature = "postgres")]
            Engine::Postgres => PgConnection::establish(url).map(Self::Postgres),
            #[cfg(feature = "mysql")]
            Engine::Mysql => MysqlConnection::establish(url).map(Self::Mysql),
            Engine::Sqlite => SqliteConnection::establish(url).map(Self::Sqlite),
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            _ => anyhow::bail!("this program was built without support for that database"),
        };
        let mut conn = connected.context("can't connect to the database")?;
        if database.engine == Engine::Sqlite {
            conn.batch_execute(
                "PRAGMA busy_timeout = 60000; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON",
            )?;
        }
        Ok(conn)
    }

    pub fn engine(&self) -> Engine {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Engine::Postgres,
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => Engine::Mysql,
            Self::Sqlite(_) => Engine::Sqlite,
        }
    }

    /// Begins a transaction by this statement. Diesel knows of the transaction, and so does diesel-locks.
    pub fn begin(&mut self, sql: &str) -> QueryResult<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(conn) => AnsiTransactionManager::begin_transaction_sql(conn, sql),
            #[cfg(feature = "mysql")]
            Self::Mysql(conn) => AnsiTransactionManager::begin_transaction_sql(conn, sql),
            Self::Sqlite(conn) => AnsiTransactionManager::begin_transaction_sql(conn, sql),
        }
    }

    pub fn commit(&mut self) -> QueryResult<()> {
        <Self as Connection>::TransactionManager::commit_transaction(self)
    }

    pub fn roll_back(&mut self) -> QueryResult<()> {
        <Self as Connection>::TransactionManager::rollback_transaction(self)
    }

    /// Whether a transaction is open.
    pub fn is_in_transaction(&mut self) -> QueryResult<bool> {
        let status = <Self as Connection>::TransactionManager::transaction_manager_status_mut(self);
        Ok(status.transaction_depth()?.is_some())
    }

    /// Creates tables by these statements. Readers and the writer of SQLite do not block each other: the mode is stored in
    /// the file.
    pub fn create_tables(&mut self, statements: &str) -> Result<()> {
        if self.engine() == Engine::Sqlite {
            self.batch_execute("PRAGMA journal_mode = WAL")?;
        }
        self.batch_execute(statements)
            .context("can't create the tables")
    }
}
