//! Connections of Diesel.

use diesel::QueryResult;
use diesel::connection::{
    AnsiTransactionManager, CacheSize, Connection, DefaultLoadingMode, LoadConnection,
};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::Error;

use super::{alone, blocking_functions};
use crate::link::Link;

macro_rules! blocking_link {
    ($conn:ty, $corrects_status:expr) => {
        impl Link for $conn {
            blocking_functions!();

            const CORRECTS_STATUS: bool = $corrects_status;

            const KNOWS_SERVER_STATE: bool = true;

            async fn get_result<Q, T>(&mut self, query: Q) -> QueryResult<T>
            where
                Q: AsQuery<Query: QueryFragment<<Self as Link>::Backend> + QueryId + Send> + Send,
                <Self as Link>::Backend: QueryMetadata<Q::SqlType>,
                T: FromSqlRow<Q::SqlType, <Self as Link>::Backend> + Send,
            {
                alone(self, |conn| {
                    let query = query.as_query();
                    let mut rows = LoadConnection::<DefaultLoadingMode>::load(conn, query)?;
                    let row = rows.next().ok_or(Error::NotFound)??;
                    T::build_from_row(&row).map_err(Error::DeserializationError)
                })
            }

            /// Diesel can't remove a single statement from the cache, and does not show the cache's size: this sets it to
            /// unbounded, Diesel's default.
            fn reset_statement_cache(&mut self) {
                self.set_prepared_statement_cache_size(CacheSize::Disabled);
                self.set_prepared_statement_cache_size(CacheSize::Unbounded);
            }

            async fn begin(&mut self, sql: &str) -> QueryResult<()> {
                AnsiTransactionManager::begin_transaction_sql(self, sql)
            }
        }
    };
}

#[cfg(feature = "postgres")]
blocking_link!(diesel::PgConnection, true);
#[cfg(feature = "mysql")]
blocking_link!(diesel::MysqlConnection, false);
#[cfg(feature = "sqlite")]
blocking_link!(diesel::SqliteConnection, false);

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::connection::Connection;
    use diesel::dsl::sql;
    use diesel::sql_types::Integer;

    use crate::link::Link;
    use crate::poll::poll_once;
    use crate::transaction::depth::depth;

    #[test]
    fn statements_and_transactions_of_a_blocking_connection_are_ready_at_once() {
        let mut conn = SqliteConnection::establish(":memory:").expect("a database");
        let conn = &mut conn;
        poll_once(conn.batch("CREATE TABLE a (b INTEGER); INSERT INTO a VALUES (1)"))
            .expect("batch");
        poll_once(conn.begin("BEGIN IMMEDIATE")).expect("BEGIN");
        poll_once(conn.begin_nested()).expect("SAVEPOINT");
        assert_eq!(depth(conn).expect("a count"), 2);
        let added = poll_once(conn.execute(diesel::sql_query("INSERT INTO a VALUES (2), (3)")));
        assert_eq!(added.expect("INSERT"), 2);
        poll_once(conn.roll_back()).expect("ROLLBACK TO");
        poll_once(conn.commit()).expect("COMMIT");
        assert_eq!(depth(conn).expect("a count"), 0);
        let query = || diesel::select(sql::<Integer>("b FROM a"));
        assert_eq!(poll_once(conn.load(query())), Ok(vec![1]));
        assert_eq!(poll_once(conn.get_result(query())), Ok(1));
    }
}
