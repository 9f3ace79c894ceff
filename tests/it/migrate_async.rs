//! `migrate_async`, on each kind of runtime, and on pooled connections.

use tokio::runtime::{Builder, Runtime};

use crate::support::Backend;
use crate::support::backend::MIGRATIONS;

/// The tests of one engine, with its connection of diesel-async.
macro_rules! tests {
    ($module:ident, $backend:ty, $conn:ty) => {
        mod $module {
            use diesel_async::AsyncConnection;
            use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
            use diesel_locks::migrations::write_to;
            use diesel_locks::{migrate_async, run_migrations_async};

            use super::{migrated_once, runtimes};
            use crate::behaviour::application_migrations::{assert_ran_once, steps};
            use crate::support::Backend;
            use crate::support::backend::MIGRATIONS;

            type Conn = $conn;
            type Database = $backend;

            async fn migrate(url: String) -> usize {
                let mut conn = Conn::establish(&url).await.expect("a connection");
                migrate_async(&mut conn).await.expect("migrate").len()
            }

            /// For the Diesel CLI, which itself blocks.
            #[test]
            fn files_are_those_of_blocking_connections() {
                let folder = tempfile::tempdir().expect("a folder");
                let written = write_to::<Conn>(folder.path()).expect("written");
                assert_eq!(written.len(), 2 * MIGRATIONS);
                let again = write_to::<<Database as Backend>::Conn>(folder.path());
                assert!(again.expect("the same").is_empty());
            }

            /// Tasks of one thread, and of two.
            #[test]
            fn tasks_migrate_at_once() {
                for runtime in runtimes() {
                    let database = Database::empty();
                    let ran = runtime.block_on(async {
                        let start = |_| tokio::spawn(migrate(database.url()));
                        let tasks: Vec<_> = (0..8).map(start).collect();
                        let mut ran = 0;
                        for task in tasks {
                            ran += task.await.expect("no panic");
                        }
                        ran
                    });
                    assert_eq!(ran, MIGRATIONS, "each migration once");
                    migrated_once(&database);
                }
            }

            #[test]
            fn tasks_run_the_migrations_of_the_application_at_once() {
                for runtime in runtimes() {
                    let database = Database::empty();
                    let url = database.url();
                    let ran = runtime.block_on(async {
                        let start = |_| {
                            let url = url.clone();
                            tokio::spawn(async move {
                                let manager = AsyncDieselConnectionManager::<Conn>::new(&url);
                                let pool = deadpool::Pool::builder(manager).max_size(1).build();
                                let mut conn = pool.expect("a pool").get().await.expect("one");
                                let ran = run_migrations_async(&mut conn, steps::<Database>());
                                ran.await.expect("it waits").len()
                            })
                        };
                        let tasks: Vec<_> = (0..4).map(start).collect();
                        let mut ran = 0;
                        for task in tasks {
                            ran += task.await.expect("no panic");
                        }
                        ran
                    });
                    assert_eq!(ran, MIGRATIONS + 4, "each migration once");
                    assert_ran_once::<Database>(&mut database.connect());
                }
            }

            #[test]
            fn pooled_connections_migrate() {
                for runtime in runtimes() {
                    let database = Database::empty();
                    let url = database.url();
                    let manager = || AsyncDieselConnectionManager::<Conn>::new(&url);
                    runtime.block_on(async {
                        let pool = bb8::Pool::builder().max_size(1).build(manager());
                        let pool = pool.await.expect("a pool");
                        let mut conn = pool.get().await.expect("a connection");
                        let ran = migrate_async(&mut conn).await.expect("migrate");
                        assert_eq!(ran.len(), MIGRATIONS);

                        let pool = deadpool::Pool::builder(manager()).max_size(1).build();
                        let pool = pool.expect("a pool");
                        let mut conn = pool.get().await.expect("a connection");
                        let ran = migrate_async(&mut conn).await.expect("migrate");
                        assert_eq!(ran.len(), 0);
                        let ran = migrate_async(&mut *conn).await.expect("migrate");
                        assert_eq!(ran.len(), 0);
                    });
                    migrated_once(&database);
                }
            }
        }
    };
}

tests!(
    postgres,
    crate::support::postgres::Postgres,
    diesel_async::AsyncPgConnection
);
tests!(
    mysql,
    crate::support::mysql::Mysql,
    diesel_async::AsyncMysqlConnection
);
tests!(
    sqlite,
    crate::support::sqlite::Sqlite,
    diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>
);

fn runtimes() -> [Runtime; 2] {
    let one = Builder::new_current_thread().enable_all().build();
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    [one, two].map(|runtime| runtime.expect("a runtime"))
}

/// A blocking connection and Diesel's harness see what has run, and can revert it.
fn migrated_once<B: Backend>(database: &B) {
    let mut conn = database.connect();
    let ran = diesel_locks::migrate(&mut conn).expect("migrate");
    assert_eq!(ran.len(), 0);
    B::revert_all_migrations(&mut conn);
    let ran = diesel_locks::migrate(&mut conn).expect("migrate");
    assert_eq!(ran.len(), MIGRATIONS);
}
