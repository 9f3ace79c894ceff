//! The promises on connections of diesel-async, by the same bodies.
//!
//! Not here are the tests of what has a pool of blocking connections: lock pools, leaders, timers, shutdowns.

macro_rules! on_engine {
    ($engine:ident: $database:ident<$conn:ty>, $($list:ident),*) => {
        mod $engine {
            use crate::support::$engine::$database;
            use crate::support::awaited::Awaited;

            type Database = $database<Awaited<$conn>>;

            crate::core_tests!(Database);
            crate::session_tests!(Database);
            crate::connection_tests!(Database);
            crate::input_tests!(Database);
            $(crate::$list!(Database);)*
        }
    };
}

on_engine!(
    postgres: PostgresOn<diesel_async::AsyncPgConnection>,
    many_writers_tests, held_locks_tests
);
on_engine!(
    mysql: MysqlOn<diesel_async::AsyncMysqlConnection>,
    many_writers_tests, held_locks_tests
);
on_engine!(
    sqlite: SqliteOn<diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>>,
);
