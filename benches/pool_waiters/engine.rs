//! What the servers counted, and what a connection of a pool needs.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::{BigInt, Text};
use diesel::{MysqlConnection, PgConnection, SqliteConnection, sql_query};
use diesel_locks::SemaphoreExt;

use crate::support::backend::Backend;

pub(crate) trait PooledEngine:
    Backend + SemaphoreExt + R2D2Connection + Send + 'static
{
    /// What [`counted`](Self::counted) counts.
    const COUNTED: &'static str;

    /// What an application does to each connection of its pool.
    fn prepare(&mut self) -> QueryResult<()> {
        Ok(())
    }

    /// A counter of the server's; `None` where there is no server.
    fn counted(&mut self) -> Result<Option<i64>>;
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct Status {
    #[diesel(sql_type = Text, column_name = "Value")]
    value: String,
}

impl PooledEngine for PgConnection {
    const COUNTED: &'static str = "transactions";

    /// Sessions report what they did a while later, or when they end.
    fn counted(&mut self) -> Result<Option<i64>> {
        const SESSIONS: &str = "SELECT count(*) AS number FROM pg_stat_activity \
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        const TRANSACTIONS: &str = "SELECT xact_commit + xact_rollback AS number FROM pg_stat_database \
            WHERE datname = current_database()";
        let started = Instant::now();
        while sql_query(SESSIONS).get_result::<Number>(self)?.number > 0 {
            if started.elapsed() > Duration::from_secs(10) {
                bail!("sessions of the pool do not end");
            }
            sleep(Duration::from_millis(10));
        }
        Ok(Some(
            sql_query(TRANSACTIONS).get_result::<Number>(self)?.number,
        ))
    }
}

impl PooledEngine for MysqlConnection {
    const COUNTED: &'static str = "statements";

    fn counted(&mut self) -> Result<Option<i64>> {
        let status: Status = sql_query("SHOW GLOBAL STATUS LIKE 'Questions'").get_result(self)?;
        Ok(Some(status.value.parse()?))
    }
}

impl PooledEngine for SqliteConnection {
    const COUNTED: &'static str = "statements";

    fn prepare(&mut self) -> QueryResult<()> {
        self.batch_execute("PRAGMA busy_timeout = 5000; PRAGMA synchronous = NORMAL")
    }

    fn counted(&mut self) -> Result<Option<i64>> {
        Ok(None)
    }
}
