use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::{ConnectionError, SqliteConnection};
use diesel_async::pooled_connection::ManagerConfig;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};

use super::engine::{Activity, AfterDrop, BoxFuture, Engine, TABLE, connections};

/// A file of its own, in WAL mode.
pub(crate) struct Sqlite {
    folder: tempfile::TempDir,
}

fn with_busy_timeout() -> ManagerConfig<SyncConnectionWrapper<SqliteConnection>> {
    let mut config = ManagerConfig::default();
    config.custom_setup = Box::new(|url| {
        let url = url.to_owned();
        Box::pin(async move {
            let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(&url).await?;
            let set = conn.batch_execute("PRAGMA busy_timeout = 5000").await;
            set.map_err(ConnectionError::CouldntSetupConfiguration)?;
            Ok(conn)
        })
    });
    config
}

impl Engine for Sqlite {
    const NUMBER: &'static str = "INTEGER";
    const NAME: &'static str = "SQLite";
    const LONG_STATEMENT: &'static str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
                                          WHERE i < 2000000) SELECT count(*) FROM n";
    const SHOWS_SESSIONS: bool = false;
    const ONE_WRITER: bool = true;
    const AFTER_DROP: AfterDrop = AfterDrop::Work;

    const MIGRATIONS: &'static str = "sqlite";
    const LOCK_MIGRATIONS: &'static str = "INSERT INTO written VALUES (-1, 0)";
    const LOCK_SLOTS: &'static str = "BEGIN IMMEDIATE";
    const WAIT_FOR_A_MINUTE: &'static str = "PRAGMA busy_timeout = 60000";
    const NOBODY_MIGRATES: &'static str = "1";

    type Blocking = SqliteConnection;
    type Conn = SyncConnectionWrapper<SqliteConnection>;

    connections!(SyncConnectionWrapper<SqliteConnection>, with_busy_timeout());

    fn url(&self) -> String {
        let file = self.folder.path().join("test.sqlite3");
        file.to_str().expect("a path in UTF-8").to_owned()
    }

    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = Self { folder };
        let mut conn = database.connect();
        Self::sql(&mut conn, "PRAGMA journal_mode = WAL");
        diesel_locks::migrate(&mut conn).expect("migrate");
        Self::sql(&mut conn, TABLE);
        database
    }

    fn connect(&self) -> SqliteConnection {
        let mut conn = SqliteConnection::establish(&self.url()).expect("open");
        Self::sql(
            &mut conn,
            "PRAGMA busy_timeout = 5000; PRAGMA synchronous = NORMAL",
        );
        conn
    }

    fn session(_: &mut Self::Conn) -> BoxFuture<'_, Option<i64>> {
        Box::pin(async { None })
    }

    fn sql(conn: &mut SqliteConnection, sql: &str) {
        conn.batch_execute(sql).expect(sql);
    }

    fn activity(_: &mut SqliteConnection, _: i64) -> Option<Activity> {
        None
    }
}
