use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Integer, Text};
use diesel_migrations::MigrationHarness;

use super::backend::{Backend, EngineConnection, LockView, counters};
use super::tables::{Stored, read_tables};
use super::threads::{LONG, begin, roll_back};
use super::urls::{fresh_name, server, with_database};

const DROP_IN_TIME: &str = "SET SESSION lock_wait_timeout = 60";

/// Whether the server is a node of a cluster to which the tests send all their writes; the others take none.
static ONE_NODE: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("DIESEL_LOCKS_TEST_SINGLE_WRITER").is_some());

/// MySQL or MariaDB, with Diesel's connection.
pub(crate) type Mysql = MysqlOn<MysqlConnection>;

/// With connections of this type.
pub(crate) struct MysqlOn<C> {
    server: String,
    name: String,
    admin: Mutex<MysqlConnection>,
    connection: PhantomData<fn() -> C>,
}

impl<C> MysqlOn<C> {
    /// An empty database on another server than that of the other tests.
    pub(crate) fn empty_on(server: &str) -> Self {
        let name = fresh_name();
        let mut admin = Mysql::connect_to(server);
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .expect("create a database");
        Self {
            server: server.to_owned(),
            name,
            admin: Mutex::new(admin),
            connection: PhantomData,
        }
    }

    /// The URL of the server, as its administrator.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// A connection to no database.
    fn admin(&self) -> MutexGuard<'_, MysqlConnection> {
        // A test may have failed.
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(QueryableByName)]
struct SlotKey {
    #[diesel(sql_type = Binary)]
    name: Vec<u8>,
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

pub(crate) fn words<C: LoadConnection<Backend = diesel::mysql::Mysql>>(
    conn: &mut C,
    sql: &str,
) -> String {
    diesel::sql_query(format!("SELECT CAST(({sql}) AS CHAR) AS words"))
        .get_result::<Words>(conn)
        .expect(sql)
        .words
}

impl<C: EngineConnection<Backend = diesel::mysql::Mysql>> Backend for MysqlOn<C> {
    type Conn = C;

    const NAME: &'static str = "mysql";
    const ONE_WRITER: bool = false;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = None;
    const SAVEPOINT_FREES_KEPT: Option<bool> = Some(false);
    const SHARED: &'static str = "LOCK IN SHARE MODE";
    const COUNTING_LOCKS_FREE_SLOTS: bool = true;
    const LOST_SLOTS_STAY_LOCKED: bool = true;
    const METHODS_NOTICE_ABORTS: bool = C::NOTICES_DEADLOCKS;
    const METHODS_NOTICE_ENDS: bool = false;
    const UNTRACKED: &'static [&'static str] =
        &["BEGIN", "SET autocommit = 0", "SET autocommit = 0; BEGIN"];

    fn end_untracked(conn: &mut C) {
        Self::sql(conn, "SET autocommit = 1");
    }

    fn sees_untracked_leases(conn: &mut C) -> bool {
        Self::number(conn, "SELECT VERSION() LIKE '%MariaDB%'") == 1
    }
    const NOW_US: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const LAST_INSERTED_ID: &'static str = "LAST_INSERT_ID()";

    read_tables!(mysql, Vec<u8>);

    fn own_ids(first: i64) -> String {
        format!(
            "CREATE TABLE own_ids (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, n INTEGER) AUTO_INCREMENT = {first}"
        )
    }

    fn empty() -> Self {
        Self::empty_on(&server("MYSQL_DATABASE_URL"))
    }

    fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    fn connect_to(url: &str) -> C {
        let mut conn = C::establish(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        Self::prepare(&mut conn);
        conn
    }

    fn prepare(conn: &mut C) {
        if *ONE_NODE {
            diesel_locks::assume_single_writer(conn).expect("said");
        }
    }

    fn sql(conn: &mut C, sql: &str) {
        // Not batch_execute, which takes three round trips.
        diesel::sql_query(sql).execute(conn).expect(sql);
    }

    fn try_sql(conn: &mut C, sql: &str) -> Result<(), diesel_locks::Error> {
        diesel::sql_query(sql).execute(conn)?;
        Ok(())
    }

    fn try_number(conn: &mut C, sql: &str) -> Result<i64, diesel_locks::Error> {
        let row: Number = diesel::sql_query(format!("SELECT CAST(({sql}) AS SIGNED) AS number"))
            .get_result(conn)?;
        Ok(row.number)
    }

    fn counter_for_update(conn: &mut C, id: i32) -> Result<i64, diesel_locks::Error> {
        let counter = counters::table.find(id).select(counters::n);
        Ok(counter.for_update().first(conn)?)
    }

    /// MariaDB's, in newer versions by default.
    fn refuses_old_snapshots(conn: &mut C) -> bool {
        let variable = "SELECT COUNT(*) FROM /*!80000 performance_schema.session_variables */\
                        /*M!100100 information_schema.session_variables */ WHERE variable_name = 'innodb_snapshot_isolation' AND variable_value = 'ON'";
        Self::number(conn, variable) == 1
    }

    fn disconnect_sessions(&self) {
        let mut admin = self.admin();
        let list = format!(
            // MySQL's list of processes fails when any of them has bound binary data.
            "SELECT COALESCE(GROUP_CONCAT(/*!80000 processlist_id *//*M!100100 id */ SEPARATOR ' '), \
             '') FROM /*!80000 performance_schema.threads WHERE processlist_db *//*M!100100 \
             information_schema.processlist WHERE db */ = '{}'",
            self.name
        );
        let ended = words(&mut *admin, &list);
        let ended: BTreeSet<&str> = ended.split_whitespace().collect();
        for session in &ended {
            // It may have ended by itself.
            let _ = admin.batch_execute(&format!("KILL {session}"));
        }
        while words(&mut *admin, &list)
            .split_whitespace()
            .any(|session| ended.contains(session))
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn unlocked_slots(conn: &mut C, share: bool) -> Option<BTreeSet<(String, i32)>> {
        let lock = if share {
            "/*!80000 FOR SHARE *//*M!100100 LOCK IN SHARE MODE */"
        } else {
            "FOR UPDATE"
        };
        let sql = format!(
            "SELECT name, number FROM diesel_locks_slots FORCE INDEX (PRIMARY) {lock} SKIP LOCKED"
        );
        let rows: Vec<SlotKey> = diesel::sql_query(sql).load(conn).expect("unlocked slots");
        let keys = rows.into_iter().map(|row| (row.name.text(), row.number));
        Some(keys.collect())
    }

    /// At a gate, or in a statement that locks a row: InnoDB's own list leaves out those that wait in a
    /// transaction that has written nothing (MariaDB).
    fn waiting(&self) -> Option<i64> {
        Some(Mysql::number(
            &mut self.admin(),
            &format!(
                // Not MySQL's list of processes, as above.
                "SELECT COUNT(*) FROM /*!80000 (SELECT processlist_db AS db, processlist_state AS state, \
                 processlist_command AS command, processlist_info AS info FROM performance_schema.threads) \
                 *//*M!100100 information_schema.processlist */ AS sessions \
                 WHERE db = '{}' AND (state IN ('User lock', 'Waiting for table metadata lock') \
                 OR (command <> 'Sleep' AND (info LIKE '%diesel_locks_objects%FOR UPDATE' \
                 OR info LIKE '%diesel_locks_objects%SHARE%' \
                 OR info LIKE '%counters%FOR UPDATE' OR info LIKE 'INSERT INTO diesel_locks_sequences%')))",
                self.name
            ),
        ))
    }

    fn lock_view(conn: &mut C) -> LockView {
        let mysql = Self::number(conn, "SELECT VERSION() NOT LIKE '%MariaDB%'") == 1;
        LockView {
            without_waiters: mysql,
            transient_ids: mysql,
            all_waiters: mysql,
        }
    }

    fn lock_objects_table(conn: &mut C) {
        conn.batch_execute("LOCK TABLES diesel_locks_objects WRITE; UNLOCK TABLES")
            .expect("lock the table");
    }

    /// At READ COMMITTED, which `lock_object` asks for on MySQL.
    fn in_transaction<T>(
        conn: &mut C,
        work: impl FnOnce(&mut C) -> Result<T, diesel_locks::Error>,
    ) -> Result<T, diesel_locks::Error> {
        Self::sql(
            conn,
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        );
        let result = conn.transaction(work);
        Self::sql(
            conn,
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        );
        result
    }

    /// A deadlock with a transaction that has changed more rows, so that InnoDB aborts this one.
    fn abort_transaction(conn: &mut C, mut other: C) {
        let lock = |id| format!("SELECT n FROM counters WHERE id = {id} FOR UPDATE");
        Self::number(conn, &lock(2));
        let (holds, is_held) = std::sync::mpsc::channel();
        let survivor = super::threads::spawn(move || {
            begin(&mut other);
            for round in 0..4 {
                let sql = format!("UPDATE counters SET n = {round} + 1 WHERE id BETWEEN 3 AND 8");
                Self::sql(&mut other, &sql);
            }
            holds.send(()).expect("the victim waits for it");
            let survived = Self::try_number(&mut other, &lock(2));
            roll_back(&mut other);
            survived
        });
        is_held.recv_timeout(LONG).expect("nobody else has it");
        let error = Self::try_number(conn, &lock(3)).expect_err("a deadlock");
        assert!(error.is_deadlock(), "{error:?}");
        super::threads::result_of(&survivor).expect("the other is the victim");
        // Diesel would wait for ever for the rows of a statement that has failed in place of them.
        conn.set_prepared_statement_cache_size(diesel::connection::CacheSize::Disabled);
        conn.set_prepared_statement_cache_size(diesel::connection::CacheSize::Unbounded);
    }

    fn read_only_to(url: &str) -> C {
        let mut conn = Self::connect_to(url);
        Self::sql(&mut conn, "SET SESSION TRANSACTION READ ONLY");
        conn
    }

    fn session_limits(conn: &mut C) -> String {
        words(
            conn,
            "CONCAT(/*!80000 @@SESSION.max_execution_time *//*M!100100 @@SESSION.max_statement_time */, \
             ' ', @@SESSION.innodb_lock_wait_timeout, ' ', @@SESSION.lock_wait_timeout)",
        )
    }

    fn session(conn: &mut C) -> String {
        let autocommit = words(conn, "@@SESSION.autocommit");
        format!("{} {autocommit}", Self::session_limits(conn))
    }

    fn set_short_lock_timeout(conn: &mut C) {
        Self::sql(conn, "SET SESSION innodb_lock_wait_timeout = 1");
    }

    fn set_session_limits(conn: &mut C) {
        Self::sql(
            conn,
            "SET SESSION /*!80000 max_execution_time = 61000 *//*M!100100 max_statement_time = 61 */, \
             SESSION innodb_lock_wait_timeout = 62, SESSION lock_wait_timeout = 63",
        );
    }

    fn writes(conn: &mut C) -> i64 {
        Self::number(
            conn,
            "SELECT SUM(variable_value) FROM /*!80000 performance_schema.session_status */\
             /*M!100100 information_schema.session_status */ \
             WHERE variable_name IN ('Handler_update', 'Handler_delete')",
        )
    }

    fn serializable(conn: &mut C) {
        Self::sql(conn, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    }

    fn revert_last_migration(conn: &mut C) {
        conn.revert_last_migration(diesel_locks::migrations::MYSQL)
            .expect("revert");
    }
}

impl<C> Drop for MysqlOn<C> {
    fn drop(&mut self) {
        // Not `admin`: a second panic would hide the first.
        let dropped = MysqlConnection::establish(&self.server)
            .map_err(|error| error.to_string())
            .and_then(|mut admin| {
                // Not longer for a transaction that a session has left open there.
                let drop = format!("DROP DATABASE {}", self.name);
                [DROP_IN_TIME, &drop]
                    .iter()
                    .try_for_each(|sql| admin.batch_execute(sql))
                    .map_err(|error| error.to_string())
            });
        if !thread::panicking() {
            dropped.expect("drop the database");
        }
    }
}
