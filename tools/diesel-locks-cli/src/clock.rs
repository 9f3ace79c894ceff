//! The clock of the database.

use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel::{QueryResult, RunQueryDsl};
use diesel_locks::chrono::{DateTime, TimeDelta, Utc};

use crate::database::{AnyConnection, Engine};

/// The time of the database; on SQLite, whose clock is that of this machine, in whole seconds.
pub(crate) fn now(conn: &mut AnyConnection) -> QueryResult<DateTime<Utc>> {
    let expression = match conn.engine() {
        Engine::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
        Engine::Mysql => "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
        Engine::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
    };
    let us = diesel::select(sql::<BigInt>(expression)).get_result(conn)?;
    Ok(DateTime::UNIX_EPOCH + TimeDelta::microseconds(us))
}
