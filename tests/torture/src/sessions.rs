//! What the engines differ in, of statements about sessions and not about data. Raw SQL: none of it is about a table of the application's.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Text};
use rand::seq::SliceRandom;
use torture_history::scene;

/// What is done to other sessions.
pub(crate) trait Sessions: SimpleConnection {
    /// Ends some sessions of this database, but for this one: how many.
    fn terminate_some(&mut self, limit: i64) -> QueryResult<usize>;

    /// How many other sessions of this database there are.
    fn others(&mut self) -> QueryResult<i64>;

    /// Begins a transaction that has read everything.
    fn begin_snapshot(&mut self) -> QueryResult<()>;

    /// Begins a transaction that others who write wait for; an error when it has to wait too long itself.
    fn begin_hogging(&mut self) -> QueryResult<()>;

    /// Ends it.
    fn end(&mut self) -> QueryResult<()> {
        self.batch_execute("ROLLBACK")
    }
}

const READ_ALL: &str = "SELECT count(*) FROM diesel_object_locks; SELECT count(*) FROM diesel_slots; \
                        SELECT count(*) FROM diesel_sequences; SELECT count(*) FROM torture_ledger";

/// Two accounts and a counter.
fn wanted_rows() -> [i32; 3] {
    let key = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
    [
        key(0),
        key(scene::ACCOUNTS.start),
        key(scene::ACCOUNTS.end - 1),
    ]
}

impl Sessions for PgConnection {
    fn terminate_some(&mut self, limit: i64) -> QueryResult<usize> {
        diesel::sql_query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT $1",
        )
        .bind::<BigInt, _>(limit)
        .execute(self)
    }

    fn others(&mut self) -> QueryResult<i64> {
        let others: Session = diesel::sql_query(
            "SELECT count(*) AS id FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        )
        .get_result(self)?;
        Ok(others.id)
    }

    fn begin_snapshot(&mut self) -> QueryResult<()> {
        self.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        self.batch_execute(READ_ALL)
    }

    fn begin_hogging(&mut self) -> QueryResult<()> {
        // Without it, it waits for as long as somebody else stands still.
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
struct Session {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Text)]
    version: String,
}

/// The other sessions of this database.
fn sessions(conn: &mut MysqlConnection) -> QueryResult<Vec<Session>> {
    let version: Version = diesel::sql_query("SELECT version() AS version").get_result(conn)?;
    // MySQL's own list of sessions fails while one of them has binary values bound; MariaDB leaves the other empty.
    let list = if version.version.contains("MariaDB") {
        "SELECT CAST(id AS SIGNED) AS id FROM information_schema.processlist \
         WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    } else {
        "SELECT CAST(processlist_id AS SIGNED) AS id FROM performance_schema.threads \
         WHERE processlist_db = DATABASE() AND processlist_id <> CONNECTION_ID()"
    };
    diesel::sql_query(list).load(conn)
}

impl Sessions for MysqlConnection {
    fn terminate_some(&mut self, limit: i64) -> QueryResult<usize> {
        let mut sessions = sessions(self)?;
        sessions.shuffle(&mut rand::rng());
        let mut ended = 0;
        for session in sessions
            .into_iter()
            .take(usize::try_from(limit).unwrap_or(0))
        {
            // It may have ended by itself. Digits, as MySQL binds no value in it.
            let killed = self.batch_execute(&format!("KILL {:#x}", session.id));
            ended += usize::from(killed.is_ok());
        }
        Ok(ended)
    }

    fn others(&mut self) -> QueryResult<i64> {
        Ok(i64::try_from(sessions(self)?.len()).unwrap_or(i64::MAX))
    }

    fn begin_snapshot(&mut self) -> QueryResult<()> {
        self.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        self.batch_execute(READ_ALL)
    }

    fn begin_hogging(&mut self) -> QueryResult<()> {
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
    fn terminate_some(&mut self, _limit: i64) -> QueryResult<usize> {
        Ok(0)
    }

    fn others(&mut self) -> QueryResult<i64> {
        Ok(0)
    }

    fn begin_snapshot(&mut self) -> QueryResult<()> {
        self.batch_execute("BEGIN")?;
        self.batch_execute(READ_ALL)
    }

    fn begin_hogging(&mut self) -> QueryResult<()> {
        self.batch_execute("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE")
    }
}
