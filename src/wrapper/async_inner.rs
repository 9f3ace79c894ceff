//! Connections of diesel-async inside a wrapper: blocking ones, and for tests those that are awaited.

use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;

use super::{Engine, InnerConnection};

macro_rules! inner {
    ($feature:literal, $name:ident = $conn:ty, $awaited:ident, $blocking:ident) => {
        #[cfg(feature = $feature)]
        pub(super) type $name = $conn;

        #[cfg(feature = $feature)]
        #[cfg_attr(docsrs, doc(cfg(feature = $feature)))]
        impl<'a> From<&'a mut AsyncConnectionWrapper<$conn>> for InnerConnection<'a> {
            fn from(conn: &'a mut AsyncConnectionWrapper<$conn>) -> Self {
                Self(Engine::$blocking(conn))
            }
        }

        #[cfg(feature = $feature)]
        #[doc(hidden)]
        impl<'a> From<&'a mut $conn> for InnerConnection<'a> {
            fn from(conn: &'a mut $conn) -> Self {
                Self(Engine::$awaited(conn))
            }
        }
    };
}

inner!(
    "async-postgres",
    Postgres = diesel_async::AsyncPgConnection,
    AsyncPostgres,
    BlockingPostgres
);
inner!(
    "async-mysql",
    Mysql = diesel_async::AsyncMysqlConnection,
    AsyncMysql,
    BlockingMysql
);
inner!(
    "async-sqlite",
    Sqlite = diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>,
    AsyncSqlite,
    BlockingSqlite
);
