use std::collections::BTreeSet;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Text};
use diesel_migrations::MigrationHarness;

use super::backend::{Backend, EngineConnection, LockView, counters};
use super::postgres_database::Database;
use super::tables::read_tables;
use super::urls::server;

/// With Diesel's connection.
pub(crate) type Postgres = PostgresOn<PgConnection>;

/// With connections of this type.
pub(crate) struct PostgresOn<C> {
    database: Database,
    connection: PhantomData<fn() -> C>,
}

impl<C> From<Database> for PostgresOn<C> {
    fn from(database: Database) -> Self {
        Self {
            database,
            connection: PhantomData,
        }
    }
}

impl<C> PostgresOn<C> {
    /// An empty database on another server than that of the other tests.
    pub(crate) fn empty_on(server: &str) -> Self {
        Database::empty_on(server).into()
    }

    /// The URL of the server, as its administrator.
    pub(crate) fn server(&self) -> &str {
        &self.database.server
    }
}

#[derive(QueryableByName)]
struct SlotKey {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Integer)]
    number: i32,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct Words {
    #[diesel(sql_type = Text)]
    words: String,
}

/// Servers of others may lack the locale; then `DIESEL_LOCKS_TEST_WITHOUT_LOCALES` says so.
pub(crate) fn knows_no_german() -> bool {
    std::env::var_os("DIESEL_LOCKS_TEST_WITHOUT_LOCALES").is_some()
}

pub(crate) fn words<C: LoadConnection<Backend = Pg>>(conn: &mut C, sql: &str) -> String {
    diesel::sql_query(format!("SELECT ({sql})::text AS words"))
        .get_result::<Words>(conn)
        .expect(sql)
        .words
}

impl<C: EngineConnection<Backend = Pg>> Backend for PostgresOn<C> {
    type Conn = C;

    const NAME: &'static str = "postgres";
    const ONE_WRITER: bool = false;
    const UNTRACKED_SURVIVES: bool = false;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = Some(true);
    const SAVEPOINT_FREES_KEPT: Option<bool> = Some(true);
    const SHARED: &'static str = "FOR SHARE";
    const NOW_US: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const LAST_INSERTED_ID: &'static str = "lastval()";
    const NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID: bool = true;

    read_tables!(postgres, String);

    fn own_ids(first: i64) -> String {
        format!(
            "CREATE TABLE own_ids (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH {first}), n INTEGER)"
        )
    }

    fn empty() -> Self {
        Self::empty_on(&server("PG_DATABASE_URL"))
    }

    fn new() -> Self {
        Database::with_tables_on(&server("PG_DATABASE_URL"), Postgres::make_tables).into()
    }

    fn url(&self) -> String {
        self.database.url()
    }

    fn connect_to(url: &str) -> C {
        C::establish(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn sql(conn: &mut C, sql: &str) {
        conn.batch_execute(sql).expect(sql);
    }

    fn try_number(conn: &mut C, sql: &str) -> Result<i64, diesel_locks::Error> {
        let row: Number =
            diesel::sql_query(format!("SELECT ({sql})::bigint AS number")).get_result(conn)?;
        Ok(row.number)
    }

    fn counter_for_update(conn: &mut C, id: i32) -> Result<i64, diesel_locks::Error> {
        let counter = counters::table.find(id).select(counters::n);
        Ok(counter.for_update().first(conn)?)
    }

    /// In a transaction.
    const STATEMENTS_PER_LOOK: u32 = 4;

    fn disconnect_sessions(&self) {
        Postgres::number(
            &mut self.database.admin(),
            &format!(
                "SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity WHERE datname = '{}'",
                self.database.name
            ),
        );
    }

    fn unlocked_slots(conn: &mut C, share: bool) -> Option<BTreeSet<(String, i32)>> {
        let lock = if share { Self::SHARED } else { "FOR UPDATE" };
        let sql = format!("SELECT name, number FROM diesel_locks_slots {lock} SKIP LOCKED");
        let rows: Vec<SlotKey> = diesel::sql_query(sql).load(conn).expect("unlocked slots");
        let keys = rows.into_iter().map(|row| (row.name, row.number));
        Some(keys.collect())
    }

    fn waiting(&self) -> Option<i64> {
        Some(Postgres::number(
            &mut self.database.admin(),
            &format!(
                "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = '{}' AND wait_event_type = 'Lock'",
                self.database.name
            ),
        ))
    }

    fn lock_view(_: &mut C) -> LockView {
        LockView {
            without_waiters: true,
            transient_ids: false,
            all_waiters: true,
        }
    }

    fn lock_objects_table(conn: &mut C) {
        Self::sql(
            conn,
            "BEGIN; LOCK TABLE diesel_locks_objects IN ACCESS EXCLUSIVE MODE; COMMIT",
        );
    }

    fn in_transaction<T>(
        conn: &mut C,
        work: impl FnOnce(&mut C) -> Result<T, diesel_locks::Error>,
    ) -> Result<T, diesel_locks::Error> {
        conn.transaction(work)
    }

    fn abort_transaction(conn: &mut C, _: C) {
        Self::try_sql(conn, "SELECT 1 / 0").expect_err("an error of any kind");
    }

    fn read_only_to(url: &str) -> C {
        let mut conn = Self::connect_to(url);
        Self::sql(&mut conn, "SET default_transaction_read_only = on");
        conn
    }

    fn set_repeatable_read(conn: &mut C) {
        Self::sql(
            conn,
            "SET default_transaction_isolation = 'repeatable read'",
        );
    }

    fn session_limits(conn: &mut C) -> String {
        words(
            conn,
            "current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')",
        )
    }

    fn set_short_lock_timeout(conn: &mut C) {
        Self::sql(conn, "SET lock_timeout = '20ms'");
    }

    fn set_session_limits(conn: &mut C) {
        Self::sql(
            conn,
            "SET lock_timeout = '61s'; SET statement_timeout = '62s'",
        );
    }

    fn writes(conn: &mut C) -> i64 {
        // The number of a transaction is drawn by its first write.
        Self::number(
            conn,
            "SELECT (pg_current_xact_id_if_assigned() IS NOT NULL)::integer",
        )
    }

    fn serializable(conn: &mut C) {
        Self::sql(conn, "SET default_transaction_isolation = 'serializable'");
    }

    fn revert_last_migration(conn: &mut C) {
        conn.revert_last_migration(diesel_locks::migrations::POSTGRES)
            .expect("revert");
    }
}
