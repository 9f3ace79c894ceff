//! Loads lists of semaphores, slots and sequences on MySQL and MariaDB, also in a session with a small `max_join_size`, and
//! detects a broken client library, which returns texts and bytes as empty values.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::QueryMetadata;
use diesel::mysql::{Mysql, MysqlValue};
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::sql_types::{Binary, Integer};

use crate::Error;
use crate::engine::mysql::execute::{self, MysqlError};
use crate::engine::mysql::sql;
use crate::link::On;
use crate::link::raw_sql::statement;
use crate::rt::caught;

pub(crate) fn assert_read<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
    if values.any(<[u8]>::is_empty) {
        return Err(Error::BrokenClientLibrary);
    }
    Ok(())
}

/// The value of a column that is never empty.
#[derive(Debug, FromSqlRow)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl FromSql<Binary, Mysql> for Bytes {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        match <Vec<u8> as FromSql<Binary, Mysql>>::from_sql(value)? {
            bytes if bytes.is_empty() => Err(Box::new(Error::BrokenClientLibrary)),
            bytes => Ok(Self(bytes)),
        }
    }
}

pub(crate) async fn check_client_library(conn: &mut impl On<Mysql>) -> Result<(), Error> {
    let text: String = execute::get_result(conn, sql::AnyText {}).await?;
    if text.is_empty() {
        return Err(Error::BrokenClientLibrary);
    }
    Ok(())
}

// Sessions with a small `max_join_size`.

const TOO_BIG_SELECT: i64 = 1104;

statement! {
    Mysql;
    /// SET STATEMENT, or a hint, can't be added to a query of the DSL.
    Permit {} -> Integer,
    |self| {
        "SET @diesel_locks_big_selects = @@SESSION.sql_big_selects, SESSION sql_big_selects = 1"
    }
}

statement! {
    Mysql;
    /// Has no effect unless [`Permit`] has run before.
    Restore {} -> Integer,
    |self| {
        "SET SESSION sql_big_selects = \
         CAST(COALESCE(@diesel_locks_big_selects, @@SESSION.sql_big_selects) AS UNSIGNED), \
         @diesel_locks_big_selects = NULL"
    }
}

/// Loads an operator's list, again with `sql_big_selects` if the server has refused it because of `max_join_size`. Restores
/// the setting, also after a panic.
pub(crate) async fn load_list<C, Q, T>(
    conn: &mut C,
    query: impl Fn() -> Q + Send,
) -> Result<Vec<T>, MysqlError>
where
    C: On<Mysql>,
    Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
    Mysql: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Mysql> + Send,
{
    match execute::load(conn, query()).await {
        Err(refused) if refused.number == Some(TOO_BIG_SELECT) => {
            let result = caught(async {
                execute::execute(conn, Permit {}).await?;
                execute::load(conn, query()).await
            });
            let result = result.await;
            execute::restore_by(conn, &Restore {}, result).await
        }
        result => result,
    }
}
