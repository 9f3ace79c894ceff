use std::collections::BTreeSet;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer};
use diesel_migrations::MigrationHarness;

use super::backend::{Backend, EngineConnection, LockView, counters};
use super::tables::read_tables;

/// With Diesel's connection.
pub(crate) type Sqlite = SqliteOn<SqliteConnection>;

/// A file of its own, in WAL mode, with connections of this type.
pub(crate) struct SqliteOn<C> {
    folder: tempfile::TempDir,
    connection: PhantomData<fn() -> C>,
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

impl<C: EngineConnection<Backend = diesel::sqlite::Sqlite>> Backend for SqliteOn<C> {
    type Conn = C;

    const NAME: &'static str = "sqlite";
    const ONE_WRITER: bool = true;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = Some(false);
    const SAVEPOINT_FREES_KEPT: Option<bool> = Some(false);
    const SHARED: &'static str = "";
    const NOW_US: &'static str =
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000";
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
        let database = Self {
            folder,
            connection: PhantomData,
        };
        // The file keeps the mode. Connections that switch it at the same time fail with "database is locked".
        drop(Self::connect_to(&database.url()));
        database
    }

    fn url(&self) -> String {
        let file = self.folder.path().join("test.sqlite3");
        file.to_str().expect("a path in UTF-8").to_owned()
    }

    fn connect_to(url: &str) -> C {
        let mut conn = C::establish(url).expect("open");
        conn.batch_execute(
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
        )
        .expect("pragmas");
        conn
    }

    fn sql(conn: &mut C, sql: &str) {
        conn.batch_execute(sql).expect(sql);
    }

    fn try_number(conn: &mut C, sql: &str) -> Result<i64, diesel_locks::Error> {
        let row: Number =
            diesel::sql_query(format!("SELECT ({sql}) AS number")).get_result(conn)?;
        Ok(row.number)
    }

    fn counter_for_update(conn: &mut C, id: i32) -> Result<i64, diesel_locks::Error> {
        let counter = counters::table.find(id).select(counters::n);
        Ok(counter.first(conn)?)
    }

    /// Readers are excluded in rollback mode only.
    fn disturber(&self) -> C {
        let mut conn = C::establish(&self.url()).expect("open");
        Self::sql(
            &mut conn,
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = DELETE",
        );
        conn
    }

    fn disturb(&self, conn: &mut C) {
        Self::sql(conn, "BEGIN EXCLUSIVE");
    }

    fn end_disturbance(conn: &mut C) {
        // It may have ended.
        let _ = conn.batch_execute("ROLLBACK");
    }

    fn unlocked_slots(_: &mut C, _: bool) -> Option<BTreeSet<(String, i32)>> {
        None
    }

    fn waiting(&self) -> Option<i64> {
        None
    }

    fn lock_view(_: &mut C) -> LockView {
        LockView {
            without_waiters: false,
            transient_ids: false,
            all_waiters: false,
        }
    }

    /// It has no locks on tables.
    fn lock_objects_table(_: &mut C) {}

    fn in_transaction<T>(
        conn: &mut C,
        work: impl FnOnce(&mut C) -> Result<T, diesel_locks::Error>,
    ) -> Result<T, diesel_locks::Error> {
        conn.transaction(work)
    }

    fn abort_transaction(conn: &mut C, _: C) {
        // Not as a batch, after whose errors Diesel asks SQLite.
        diesel::sql_query("INSERT OR ROLLBACK INTO counters VALUES (2, 0)")
            .execute(conn)
            .expect_err("there is one");
    }

    fn read_only_to(url: &str) -> C {
        C::establish(&format!("file:{url}?mode=ro")).expect("open")
    }

    fn session_limits(conn: &mut C) -> String {
        diesel::sql_query("PRAGMA busy_timeout")
            .get_result::<Timeout>(conn)
            .expect("busy_timeout")
            .timeout
            .to_string()
    }

    fn set_short_lock_timeout(conn: &mut C) {
        Self::sql(conn, "PRAGMA busy_timeout = 20");
    }

    fn set_session_limits(conn: &mut C) {
        Self::sql(conn, "PRAGMA busy_timeout = 6100");
    }

    fn writes(conn: &mut C) -> i64 {
        Self::number(conn, "SELECT total_changes()")
    }

    fn serializable(conn: &mut C) {
        let _ = conn;
    }

    fn revert_last_migration(conn: &mut C) {
        conn.revert_last_migration(diesel_locks::migrations::SQLITE)
            .expect("revert");
    }
}
