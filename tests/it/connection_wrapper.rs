//! Promises that an application has through its own connection type: an enum of connections, and a struct around one. And
//! through the connection with which diesel-async blocks.

/// The guarantees for which a connection goes through the wrapper.
macro_rules! bodies {
    ($backend:ident) => {
        crate::statement_tests!($backend);
        mod of_connections {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::backend_tests!($backend:
                waiting::{
                    session_limits_are_restored_after_a_wait,
                },
                errors::{
                    lock_object_needs_a_transaction,
                    a_missing_table_names_migrate,
                    a_stale_transaction_is_refused,
                    purge_and_migrate_need_to_be_outside_a_transaction,
                },
                tables::{
                    eight_servers_migrate_at_once,
                },
            );
        }
    };
}

/// One guarantee of each kind: the rest is that of the connection inside.
macro_rules! fewer_bodies {
    ($backend:ident) => {
        use crate::behaviour as bodies;

        crate::backend_tests!($backend:
            exclusion::{
                waiter_gets_the_lock_when_the_holder_commits,
            },
            nesting::{
                lock_in_a_savepoint_ends_as_documented,
            },
            transaction_end::{
                panic_rolls_back_releases_and_propagates,
                pooled_connection_is_returned_without_the_lock,
            },
        );
        mod slots {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                leases::{
                    slot_is_renewed_and_released,
                },
                transaction_slots::{
                    a_slot_is_held_as_long_as_its_transaction,
                },
            );
        }
        mod sequences {
            use super::$backend;
            use crate::behaviour::sequences as bodies;

            crate::backend_tests!($backend:
                numbering::{
                    rolled_back_number_is_drawn_again,
                },
            );
        }
        mod transactions {
            use super::$backend;
            use crate::behaviour::transactions as bodies;

            crate::backend_tests!($backend:
                aborted::{
                    closure_whose_transaction_has_ended_fails,
                },
            );
        }
    };
}

macro_rules! on_engine {
    ($engine:ident: $backend:ty, $conn:ty; $generic:ident<$async_conn:ty>) => {
        mod $engine {
            use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;

            use crate::support::awaited::AroundBlocking;
            use crate::support::connection_wrapper::WithConnection;
            use crate::support::connection_wrapper::connections::{AnyConnection, Counted};
            use crate::support::$engine::$generic;

            type Any = WithConnection<$backend, AnyConnection>;
            type Struct = WithConnection<$backend, Counted<$conn>>;
            type AsyncWrapper = $generic<AsyncConnectionWrapper<$async_conn>>;
            type AroundAsyncWrapper = $generic<AroundBlocking<$async_conn>>;

            mod any_connection {
                use super::Any;
                bodies!(Any);
            }

            mod counted {
                use super::Struct;
                fewer_bodies!(Struct);
            }

            mod async_wrapper {
                use super::AsyncWrapper;
                bodies!(AsyncWrapper);
            }

            mod around_async_wrapper {
                use super::AroundAsyncWrapper;
                fewer_bodies!(AroundAsyncWrapper);
            }
        }
    };
}

on_engine!(
    postgres: crate::support::postgres::Postgres, diesel::PgConnection;
    PostgresOn<diesel_async::AsyncPgConnection>
);
on_engine!(
    mysql: crate::support::mysql::Mysql, diesel::MysqlConnection;
    MysqlOn<diesel_async::AsyncMysqlConnection>
);
on_engine!(
    sqlite: crate::support::sqlite::Sqlite, diesel::SqliteConnection;
    SqliteOn<diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>>
);

mod on_sqlite {
    use diesel::connection::{Connection, SimpleConnection};
    use diesel::prelude::*;
    use diesel_locks::Error;
    use diesel_locks::prelude::*;

    use crate::support::Backend;
    use crate::support::connection_wrapper::connections::{Counted, Wraps};
    use crate::support::sqlite::Sqlite;

    fn read(conn: &mut Counted<SqliteConnection>) -> Result<usize, Error> {
        Ok(diesel::sql_query("SELECT 1").execute(conn)?)
    }

    #[test]
    fn wrapper_sees_the_statements_of_the_application_alone() {
        let database = Sqlite::new();
        let mut conn = Counted::wrap(database.connect());
        diesel_locks::migrate(&mut conn).expect("migrated already");
        conn.with_object_lock("a", |conn| {
            conn.with_object_lock("b", read)?;
            conn.next_number(&Sequence::new("invoice"))?;
            Ok::<_, Error>(())
        })
        .expect("free");
        assert_eq!(conn.statements, 1);
    }

    #[test]
    fn wrapper_with_transactions_of_its_own_is_refused() {
        let database = Sqlite::new();
        let mut conn = Counted::with_own_state(database.connect());
        let refused = |result: Result<(), Error>| {
            assert!(
                matches!(result, Err(Error::SeparateTransactionState { .. })),
                "{result:?}"
            );
        };
        refused(conn.with_object_lock("a", |_| Ok(())));
        refused(conn.run_transaction(TransactionOptions::new(), |_| Ok(())));
        refused(
            conn.try_with_slot(&Semaphore::new("one", 1), |_| Ok(()))
                .map(drop),
        );
        refused(diesel_locks::migrate(&mut conn).map(drop));
        refused(conn.transaction(|conn| {
            conn.next_number(&Sequence::new("invoice"))?;
            Ok(())
        }));
        assert!(database.is_free("a"));
        let error = conn.with_object_lock("a", |_| Ok::<_, Error>(()));
        let error = error.expect_err("refused").to_string();
        assert!(error.contains("Counted<"), "{error}");
        conn.batch_execute("BEGIN; COMMIT")
            .expect("no transaction is open");
    }
}
