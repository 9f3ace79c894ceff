//! The differences between the databases.

use diesel::connection::AnsiTransactionManager;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_locks::IsolationLevel;
use diesel_locks::prelude::*;

pub(crate) trait Store:
    ObjectLockExt + TransactionExt + Connection<TransactionManager = AnsiTransactionManager> + 'static
{
    /// The name of the database in the output.
    const NAME: &'static str;
    /// Whether the whole database has one writer, and no locks on rows.
    const ONE_WRITER: bool;
    /// Whether plain reads at SERIALIZABLE lock what they read, and do not read a snapshot.
    const SERIALIZABLE_READS_LOCK: bool;
    /// The clause of a SELECT for a shared lock.
    const SHARED: &'static str;
    /// Sets up a session, before any other statement.
    const SET_UP: &'static str;
    /// Selects the id of the current session.
    const SESSION: &'static str;

    fn begin_at(level: IsolationLevel) -> String;

    /// Selects 1 if the session is waiting for a lock, otherwise 0.
    fn waiting(session: i64) -> String;

    /// The number in the column `n` of the only row.
    fn number(&mut self, sql: &str) -> QueryResult<i64>;

    fn run(&mut self, sql: &str) -> QueryResult<()>;
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

macro_rules! statements {
    () => {
        fn number(&mut self, sql: &str) -> QueryResult<i64> {
            let row: Number = diesel::sql_query(sql).get_result(self)?;
            Ok(row.n)
        }

        fn run(&mut self, sql: &str) -> QueryResult<()> {
            diesel::sql_query(sql).execute(self)?;
            Ok(())
        }
    };
}

impl Store for SqliteConnection {
    const NAME: &'static str = "SQLite";
    const ONE_WRITER: bool = true;
    const SERIALIZABLE_READS_LOCK: bool = false;
    const SHARED: &'static str = "";
    const SET_UP: &'static str = "PRAGMA busy_timeout = 60000";
    const SESSION: &'static str = "SELECT 0 AS n";

    fn begin_at(_: IsolationLevel) -> String {
        "BEGIN".to_owned()
    }

    fn waiting(_: i64) -> String {
        "SELECT 0 AS n".to_owned()
    }

    statements!();
}

#[cfg(feature = "postgres")]
impl Store for PgConnection {
    const NAME: &'static str = "PostgreSQL";
    const ONE_WRITER: bool = false;
    const SERIALIZABLE_READS_LOCK: bool = false;
    const SHARED: &'static str = " FOR SHARE";
    const SET_UP: &'static str = "SET lock_timeout = '60s'";
    const SESSION: &'static str = "SELECT pg_backend_pid()::bigint AS n";

    fn begin_at(level: IsolationLevel) -> String {
        format!("BEGIN ISOLATION LEVEL {level}")
    }

    fn waiting(session: i64) -> String {
        format!(
            "SELECT count(*) AS n FROM pg_stat_activity \
             WHERE pid = {session} AND wait_event_type = 'Lock'"
        )
    }

    statements!();
}

#[cfg(feature = "mysql")]
impl Store for MysqlConnection {
    const NAME: &'static str = "MySQL or MariaDB";
    const ONE_WRITER: bool = false;
    const SERIALIZABLE_READS_LOCK: bool = true;
    // MariaDB has no FOR SHARE.
    const SHARED: &'static str = " LOCK IN SHARE MODE";
    const SET_UP: &'static str = "SET SESSION innodb_lock_wait_timeout = 60";
    const SESSION: &'static str = "SELECT CAST(CONNECTION_ID() AS SIGNED) AS n";

    fn begin_at(level: IsolationLevel) -> String {
        format!("SET TRANSACTION ISOLATION LEVEL {level}; BEGIN")
    }

    /// Counts the session while it executes a statement, because only privileged users can see which sessions wait.
    fn waiting(session: i64) -> String {
        format!(
            "SELECT COUNT(*) AS n FROM /*!80022 performance_schema.processlist */\
             /*M!100100 information_schema.processlist */ WHERE id = {session} AND command <> 'Sleep'"
        )
    }

    statements!();
}
