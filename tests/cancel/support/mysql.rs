use std::mem::ManuallyDrop;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel_async::AsyncMysqlConnection;

use super::engine::{Activity, AfterDrop, BoxFuture, Engine, TABLE, connections};
use super::urls::{address, by_way_of, fresh_name, server, with_database};

/// MySQL or MariaDB.
pub(crate) struct Mysql {
    server: String,
    name: String,
}

#[derive(QueryableByName)]
struct Session {
    #[diesel(sql_type = Text)]
    command: String,
    #[diesel(sql_type = Nullable<Text>)]
    statement: Option<String>,
}

impl Engine for Mysql {
    const NUMBER: &'static str = "SIGNED";
    const NAME: &'static str = "MySQL, MariaDB";
    const LONG_STATEMENT: &'static str = "DO SLEEP(60)";
    const IN_TRANSACTION: Option<&'static str> = Some(
        "/*!80000 SELECT COUNT(*) FROM performance_schema.events_transactions_current AS t \
         JOIN performance_schema.threads USING (thread_id) WHERE processlist_id = CONNECTION_ID() \
         AND t.state = 'ACTIVE' AND t.autocommit = 'NO' *//*M!100100 @@in_transaction */",
    );
    const ONE_WRITER: bool = false;
    const AFTER_DROP: AfterDrop = AfterDrop::FailLater;

    const MIGRATIONS: &'static str = "mysql";
    const MIGRATES_IN_TRANSACTION: bool = false;
    const LOCK_MIGRATIONS: &'static str =
        "DO GET_LOCK(CONCAT('diesel:', SHA2(DATABASE(), 224)), 10)";
    const LOCK_SLOTS: &'static str = "LOCK TABLES diesel_locks_slots WRITE";
    const WAIT_FOR_A_MINUTE: &'static str =
        "SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60";
    const NOBODY_MIGRATES: &'static str =
        "SELECT IS_FREE_LOCK(CONCAT('diesel:', SHA2(DATABASE(), 224)))";

    type Blocking = MysqlConnection;
    type Conn = AsyncMysqlConnection;

    connections!(AsyncMysqlConnection, ManagerConfig::default());

    fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    fn new() -> Self {
        let server = server("MYSQL_DATABASE_URL");
        let name = fresh_name();
        let mut admin = MysqlConnection::establish(&server).expect("the server");
        Self::sql(&mut admin, &format!("CREATE DATABASE {name}"));
        let database = Self { server, name };
        let mut conn = database.connect();
        diesel_locks::migrate(&mut conn).expect("migrate");
        Self::sql(&mut conn, TABLE);
        database
    }

    fn by_way_of(&self, port: u16) -> Option<ManuallyDrop<Self>> {
        let server = by_way_of(port, &self.server);
        let mark = if server.contains('?') { '&' } else { '?' };
        Some(ManuallyDrop::new(Self {
            // Otherwise the client switches to the server's Unix socket, and leaves the proxy.
            server: format!("{server}{mark}prefer_socket=false"),
            name: self.name.clone(),
        }))
    }

    fn address(&self) -> Option<String> {
        Some(address(&self.server).to_owned())
    }

    fn connect(&self) -> MysqlConnection {
        MysqlConnection::establish(&self.url()).expect("a connection")
    }

    fn session(conn: &mut AsyncMysqlConnection) -> BoxFuture<'_, Option<i64>> {
        Box::pin(async {
            let id = "CONNECTION_ID()".to_owned();
            Some(Self::number(conn, id).await.expect("a number"))
        })
    }

    fn sql(conn: &mut MysqlConnection, sql: &str) {
        conn.batch_execute(sql).expect(sql);
    }

    fn prepare_for_locks(conn: &mut MysqlConnection) {
        Self::sql(
            conn,
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        );
    }

    fn end_session(session: i64) -> String {
        format!("KILL {session}")
    }

    fn activity(conn: &mut MysqlConnection, session: i64) -> Option<Activity> {
        // MySQL's list of processes fails while a session runs a statement with bound binary data.
        let sql = format!(
            "SELECT CAST(command AS CHAR) AS command, CAST(info AS CHAR) AS statement FROM \
             /*!80000 (SELECT processlist_command AS command, processlist_info AS info \
             FROM performance_schema.threads WHERE processlist_id = {session}) *//*M!100100 \
             (SELECT command, info FROM information_schema.processlist WHERE id = {session}) */ AS sessions"
        );
        let rows: Vec<Session> = diesel::sql_query(sql).load(conn).expect("sessions");
        Some(match rows.into_iter().next() {
            None => Activity::Gone,
            Some(row) if row.command != "Sleep" => {
                Activity::Running(row.statement.unwrap_or(row.command))
            }
            // The session itself is asked whether a transaction is open: MariaDB fills its list of transactions anew only
            // when nobody has read it for 0.1 s.
            Some(_) => Activity::Idle,
        })
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE {}", self.name);
        let dropped = MysqlConnection::establish(&self.server).map(|mut admin| {
            // Not longer for a transaction that a session has left open there.
            admin.batch_execute("SET SESSION lock_wait_timeout = 60")?;
            admin.batch_execute(&drop)
        });
        if !std::thread::panicking() {
            dropped
                .expect("the server")
                .expect("the database is dropped");
        }
    }
}
