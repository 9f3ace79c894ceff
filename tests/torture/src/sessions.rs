//! What the engines differ in, of statements about sessions and not about data. Raw SQL: none of it is about a table of
//! the application's.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Text};
use torture_history::workload_spec;

/// What is done to other sessions.
pub(crate) trait Sessions: SimpleConnection {
    /// The other sessions of this database, in the order of their numbers.
    fn others(&mut self) -> QueryResult<Vec<i64>>;

    /// Ends a session: whether it was there.
    fn terminate(&mut self, session: i64) -> QueryResult<bool>;

    /// Begins a transaction that has read everything.
    fn begin_snapshot(&mut self) -> QueryResult<()>;

    /// Begins a transaction that others who write wait for; an error when it has to wait too long itself.
    fn begin_holding_locks(&mut self) -> QueryResult<()>;

    /// What a query returns in its only row, as `number`.
    fn number(&mut self, query: &str) -> QueryResult<i64>;

    /// The database's clock: seconds since 1970.
    fn clock(&mut self) -> QueryResult<i64>;

    /// Ends it.
    fn end(&mut self) -> QueryResult<()> {
        self.batch_execute("ROLLBACK")
    }
}

const READ_ALL: &str = "SELECT count(*) FROM diesel_locks_objects; SELECT count(*) FROM diesel_locks_slots; \
                        SELECT count(*) FROM diesel_locks_sequences; SELECT count(*) FROM torture_ledger";

/// Two accounts and a counter.
fn wanted_rows() -> [i32; 3] {
    let key = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
    [
        key(0),
        key(workload_spec::ACCOUNTS.start),
        key(workload_spec::ACCOUNTS.end - 1),
    ]
}

impl Sessions for PgConnection {
    fn others(&mut self) -> QueryResult<Vec<i64>> {
        let others: Vec<Session> = diesel::sql_query(
            "SELECT CAST(pid AS bigint) AS id FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
             ORDER BY pid",
        )
        .load(self)?;
        Ok(others.into_iter().map(|session| session.id).collect())
    }

    fn terminate(&mut self, session: i64) -> QueryResult<bool> {
        let terminated: Terminated =
            diesel::sql_query("SELECT pg_terminate_backend(CAST($1 AS integer)) AS terminated")
                .bind::<BigInt, _>(session)
                .get_result(self)?;
        Ok(terminated.terminated)
    }

    fn clock(&mut self) -> QueryResult<i64> {
        self.number("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS bigint) AS number")
    }

    fn number(&mut self, query: &str) -> QueryResult<i64> {
        let row: Number = diesel::sql_query(query).get_result(self)?;
        Ok(row.number)
    }

    fn begin_snapshot(&mut self) -> QueryResult<()> {
        self.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        self.batch_execute(READ_ALL)
    }

    fn begin_holding_locks(&mut self) -> QueryResult<()> {
        // Without a limit it would wait as long as a stopped process holds the lock.
        self.batch_execute("SET lock_timeout = '10s'; BEGIN")?;
        for row in wanted_rows() {
            diesel::sql_query("SELECT 1 FROM torture_counters WHERE id = $1 FOR UPDATE")
                .bind::<Integer, _>(row)
                .execute(self)?;
        }
        Ok(())
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct Session {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

#[derive(QueryableByName)]
struct Terminated {
    #[diesel(sql_type = Bool)]
    terminated: bool,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Text)]
    version: String,
}

impl Sessions for MysqlConnection {
    fn others(&mut self) -> QueryResult<Vec<i64>> {
        let version: Version = diesel::sql_query("SELECT version() AS version").get_result(self)?;
        // MySQL's own list of sessions fails while one of them has binary values bound; MariaDB leaves the other empty.
        let list = if version.version.contains("MariaDB") {
            "SELECT CAST(id AS SIGNED) AS id FROM information_schema.processlist \
             WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY id"
        } else {
            "SELECT CAST(processlist_id AS SIGNED) AS id FROM performance_schema.threads \
             WHERE processlist_db = DATABASE() AND processlist_id <> CONNECTION_ID() ORDER BY id"
        };
        let others: Vec<Session> = diesel::sql_query(list).load(self)?;
        Ok(others.into_iter().map(|session| session.id).collect())
    }

    fn terminate(&mut self, session: i64) -> QueryResult<bool> {
        // It may have ended by itself. Digits, as MySQL binds no value in it.
        Ok(self.batch_execute(&format!("KILL {session:#x}")).is_ok())
    }

    fn clock(&mut self) -> QueryResult<i64> {
        self.number("SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP()) AS number")
    }

    fn number(&mut self, query: &str) -> QueryResult<i64> {
        let row: Number = diesel::sql_query(query).get_result(self)?;
        Ok(row.number)
    }

    fn begin_snapshot(&mut self) -> QueryResult<()> {
        self.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        self.batch_execute(READ_ALL)
    }

    fn begin_holding_locks(&mut self) -> QueryResult<()> {
        self.batch_execute("SET SESSION innodb_lock_wait_timeout = 10; START TRANSACTION")?;
        for row in wanted_rows() {
            diesel::sql_query("UPDATE torture_counters SET n = n WHERE id = ?")
                .bind::<Integer, _>(row)
                .execute(self)?;
        }
        Ok(())
    }
}

impl Sessions for SqliteConnection {
    fn others(&mut self) -> QueryResult<Vec<i64>> {
        Ok(Vec::new())
    }

    fn terminate(&mut self, _session: i64) -> QueryResult<bool> {
        Ok(false)
    }

    fn clock(&mut self) -> QueryResult<i64> {
        self.number("SELECT CAST(strftime('%s', 'now') AS bigint) AS number")
    }

    fn number(&mut self, query: &str) -> QueryResult<i64> {
        let row: Number = diesel::sql_query(query).get_result(self)?;
        Ok(row.number)
    }

    fn begin_snapshot(&mut self) -> QueryResult<()> {
        self.batch_execute("BEGIN")?;
        self.batch_execute(READ_ALL)
    }

    fn begin_holding_locks(&mut self) -> QueryResult<()> {
        self.batch_execute("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE")
    }
}
