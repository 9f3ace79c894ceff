use std::mem::ManuallyDrop;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel_async::AsyncPgConnection;

use super::engine::{Activity, AfterDrop, BoxFuture, Engine, TABLE, connections};
use super::postgres_database::Database;
use super::urls::{address, by_way_of, server};

pub(crate) struct Postgres {
    url: String,
    /// Not of one that is by way of another port.
    _database: Option<Database>,
}

#[derive(QueryableByName)]
struct Session {
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Nullable<Text>)]
    query: Option<String>,
}

impl Engine for Postgres {
    const NUMBER: &'static str = "BIGINT";
    const NAME: &'static str = "PostgreSQL";
    const LONG_STATEMENT: &'static str = "SELECT pg_sleep(60)";
    const ONE_WRITER: bool = false;
    const AFTER_DROP: AfterDrop = AfterDrop::Fail;

    const MIGRATIONS: &'static str = "postgres";
    // The key is "diesel-l" as a number.
    const LOCK_MIGRATIONS: &'static str =
        "SELECT pg_advisory_xact_lock(x'64696573656c2d6c'::bigint)";
    const LOCK_SLOTS: &'static str = "BEGIN; LOCK TABLE diesel_locks_slots";
    const WAIT_FOR_A_MINUTE: &'static str = "SET lock_timeout = '1min'";
    const NOBODY_MIGRATES: &'static str = "SELECT CASE WHEN count(*) = 0 THEN 1 ELSE 0 END FROM pg_locks \
         JOIN pg_database ON oid = database WHERE locktype = 'advisory' AND datname = current_database()";

    type Blocking = PgConnection;
    type Conn = AsyncPgConnection;

    connections!(AsyncPgConnection, ManagerConfig::default());

    fn url(&self) -> String {
        self.url.clone()
    }

    fn url_with_client_checks(&self) -> String {
        let url = self.url();
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}options=-c%20client_connection_check_interval%3D100ms")
    }

    const CHECKS_CLIENTS: bool = true;

    fn new() -> Self {
        let database = Database::with_tables_on(&server("PG_DATABASE_URL"), |conn| {
            diesel_locks::migrate(conn).expect("migrate");
            Self::sql(conn, TABLE);
        });
        Self {
            url: database.url(),
            _database: Some(database),
        }
    }

    fn by_way_of(&self, port: u16) -> Option<ManuallyDrop<Self>> {
        Some(ManuallyDrop::new(Self {
            url: by_way_of(port, &self.url),
            _database: None,
        }))
    }

    fn address(&self) -> Option<String> {
        Some(address(&self.url).to_owned())
    }

    fn connect(&self) -> PgConnection {
        PgConnection::establish(&self.url()).expect("a connection")
    }

    fn session(conn: &mut AsyncPgConnection) -> BoxFuture<'_, Option<i64>> {
        Box::pin(async {
            let pid = "pg_backend_pid()".to_owned();
            Some(Self::number(conn, pid).await.expect("a number"))
        })
    }

    fn sql(conn: &mut PgConnection, sql: &str) {
        conn.batch_execute(sql).expect(sql);
    }

    fn end_session(session: i64) -> String {
        format!("SELECT pg_terminate_backend({session})")
    }

    fn activity(conn: &mut PgConnection, session: i64) -> Option<Activity> {
        let sql = format!("SELECT state, query FROM pg_stat_activity WHERE pid = {session}");
        let rows: Vec<Session> = diesel::sql_query(sql).load(conn).expect("sessions");
        Some(match rows.into_iter().next() {
            None => Activity::Gone,
            Some(Session { state, query }) => match state.as_str() {
                "idle" => Activity::Idle,
                "active" => Activity::Running(query.unwrap_or_default()),
                _ => Activity::InTransaction,
            },
        })
    }
}
