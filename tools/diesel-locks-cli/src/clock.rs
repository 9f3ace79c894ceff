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
        // UNIX_TIMESTAMP of a local time is an hour off in one of the two hours that have the same name.
        Engine::Mysql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        Engine::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
    };
    let us = diesel::select(sql::<BigInt>(expression)).get_result(conn)?;
    Ok(DateTime::UNIX_EPOCH + TimeDelta::microseconds(us))
}

#[cfg(all(test, feature = "mysql"))]
mod tests {
    use diesel::connection::SimpleConnection;
    use program_support::testing::OwnDatabase;

    use super::now;
    use crate::database::Database;

    /// 2026-10-25 in Central Europe: a quarter past two, twice.
    #[test]
    fn mysql_clock_does_not_depend_on_the_local_time() {
        let own = OwnDatabase::<diesel::MysqlConnection>::create("MYSQL_DATABASE_URL");
        let database = Database::from_url(Some(&own.url)).expect("a URL");
        let mut conn = database.open().expect("a connection");
        for (zone, second) in [("+02:00", 1_792_887_300), ("+01:00", 1_792_890_900)] {
            let set = format!("SET time_zone = '{zone}', timestamp = {second}.25");
            conn.batch_execute(&set).expect("set");
            let read = now(&mut conn).expect("a time");
            assert_eq!(read.timestamp_micros(), second * 1_000_000 + 250_000);
        }
    }
}
