use std::collections::BTreeSet;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer};
use diesel_migrations::MigrationHarness;

use super::backend::{Backend, LockView, counters};
use super::tables::read_tables;

/// A file of its own, in WAL mode.
pub(crate) struct Sqlite {
    folder: tempfile::TempDir,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct Timeout {
    #[diesel(sql_type = Integer)]
    timeout: i32,
}

impl Backend for Sqlite {
    type Conn = SqliteConnection;

    const NAME: &'static str = "sqlite";
    const ONE_WRITER: bool = true;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = Some(false);
    const SAVEPOINT_FREES_KEPT: Option<bool> = Some(false);
    const SHARED: &'static str = "";
    const NOW_US: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    const LAST_INSERTED_ID: &'static str = "last_insert_rowid()";

    read_tables!(sqlite, String);

    fn own_ids(first: i64) -> String {
        format!(
            "CREATE TABLE own_ids (id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER); \
             INSERT INTO sqlite_sequence VALUES ('own_ids', {first})"
        )
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = Self { folder };
        // The file keeps the mode. Connections that switch it at the same time fail with "database is locked".
        drop(Self::connect_to(&database.url()));
        database
    }

    fn url(&self) -> String {
        let file = self.folder.path().join("test.sqlite3");
        file.to_str().expect("a path in UTF-8").to_owned()
    }

    fn connect_to(url: &str) -> SqliteConnection {
        let mut conn = SqliteConnection::establish(url).expect("open");
        conn.batch_execute(
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
        )
        .expect("pragmas");
        conn
    }

    fn sql(conn: &mut SqliteConnection, sql: &str) {
        conn.batch_execute(sql).expect(sql);
    }

    fn try_number(conn: &mut SqliteConnection, sql: &str) -> Result<i64, diesel_locks::Error> {
        let row: Number =
            diesel::sql_query(format!("SELECT ({sql}) AS number")).get_result(conn)?;
        Ok(row.number)
    }

    fn counter_for_update(
        conn: &mut SqliteConnection,
        id: i32,
    ) -> Result<i64, diesel_locks::Error> {
        let counter = counters::table.find(id).select(counters::n);
        Ok(counter.first(conn)?)
    }

    /// Readers are excluded in rollback mode only.
    fn disturber(&self) -> SqliteConnection {
        let mut conn = SqliteConnection::establish(&self.url()).expect("open");
        Self::sql(
            &mut conn,
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = DELETE",
        );
        conn
    }

    fn disturb(&self, conn: &mut SqliteConnection) {
        Self::sql(conn, "BEGIN EXCLUSIVE");
    }

    fn end_disturbance(conn: &mut SqliteConnection) {
        // It may have ended.
        let _ = conn.batch_execute("ROLLBACK");
    }

    fn unlocked_slots(_: &mut SqliteConnection, _: bool) -> Option<BTreeSet<(String, i32)>> {
        None
    }

    fn waiting(&self) -> Option<i64> {
        None
    }

    fn lock_view(_: &mut SqliteConnection) -> LockView {
        LockView {
            without_waiters: false,
            transient_ids: false,
            all_waiters: false,
        }
    }

    /// It has no locks on tables.
    fn lock_objects_table(_: &mut SqliteConnection) {}

    fn in_transaction<T>(
        conn: &mut SqliteConnection,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, diesel_locks::Error>,
    ) -> Result<T, diesel_locks::Error> {
        conn.transaction(work)
    }

    fn abort_transaction(conn: &mut SqliteConnection, _: SqliteConnection) {
        // Not as a batch, after whose errors Diesel asks SQLite.
        diesel::sql_query("INSERT OR ROLLBACK INTO counters VALUES (2, 0)")
            .execute(conn)
            .expect_err("there is one");
    }

    fn read_only_to(url: &str) -> SqliteConnection {
        SqliteConnection::establish(&format!("file:{url}?mode=ro")).expect("open")
    }

    fn session_limits(conn: &mut SqliteConnection) -> String {
        diesel::sql_query("PRAGMA busy_timeout")
            .get_result::<Timeout>(conn)
            .expect("busy_timeout")
            .timeout
            .to_string()
    }

    fn set_short_lock_timeout(conn: &mut SqliteConnection) {
        Self::sql(conn, "PRAGMA busy_timeout = 20");
    }

    fn set_session_limits(conn: &mut SqliteConnection) {
        Self::sql(conn, "PRAGMA busy_timeout = 6100");
    }

    fn writes(conn: &mut SqliteConnection) -> i64 {
        Self::number(conn, "SELECT total_changes()")
    }

    fn serializable(conn: &mut SqliteConnection) {
        let _ = conn;
    }

    fn revert_last_migration(conn: &mut SqliteConnection) {
        conn.revert_last_migration(diesel_locks::migrations::SQLITE)
            .expect("revert");
    }
}
