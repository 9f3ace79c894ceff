//! Promises that an application has through its own connection type: an enum of connections, and a struct around one. And
//! through the connection with which diesel-async blocks.

/// The guarantees for which a connection goes through the wrapper.
macro_rules! bodies {
    ($backend:ident) => {
        use crate::behaviour as bodies;

        crate::backend_tests!($backend:
            exclusion::{
                waiter_gets_the_lock_when_the_holder_commits,
                waiter_gets_the_lock_when_the_holder_rolls_back,
                waiter_gets_the_lock_when_the_holders_connection_is_dropped,
            },
            waiting::{
                transaction_survives_a_timeout,
                session_limits_are_restored_after_a_wait,
            },
            nesting::{
                lock_is_reentrant,
                lock_in_a_savepoint_ends_as_documented,
                with_object_lock_in_a_transaction_is_a_savepoint,
            },
            transaction_end::{
                closure_error_rolls_back_and_releases,
                panic_rolls_back_releases_and_propagates,
                pooled_connection_is_returned_without_the_lock,
                closure_error_may_be_any_type_made_from_error,
            },
            lists::{
                semaphores_are_listed_with_their_holders,
                sequences_are_filtered_by_key,
            },
            retention::{
                kept_rows_stay_until_purged,
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
        mod slots {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                capacity::{
                    eight_connections_always_get_one_of_eight_slots,
                },
                guards::{
                    guard_is_renewed_until_it_is_dropped,
                },
                transaction_slots::{
                    a_slot_is_held_as_long_as_its_transaction,
                    leases_and_slots_of_transactions_count_together,
                    a_slot_of_a_savepoint_is_held_by_the_transaction,
                },
                leases::{
                    slot_is_renewed_and_released,
                    slot_granted_to_another_is_lost,
                    force_release_all_releases_every_slot,
                    remaining_leases_use_the_database_clock,
                },
                fences::{
                    raised_fences_are_larger_than_lost_ones,
                    a_stale_writer_is_stopped_by_pin_slot,
                },
                permits::{
                    lowered_permits_are_never_exceeded,
                },
                rows::{
                    register_takes_all_variants_of_an_enum,
                    purge_removes_what_is_free_and_old,
                },
            );
        }
        mod sequences {
            use super::$backend;
            use crate::behaviour::sequences as bodies;

            crate::backend_tests!($backend:
                numbering::{
                    rolled_back_number_is_drawn_again,
                    number_of_a_rolled_back_savepoint_is_drawn_again,
                    draw_blocks_until_previous_draw_commits,
                    last_number_does_not_wait_for_a_draw,
                },
            );
        }
        mod transactions {
            use super::$backend;
            use crate::behaviour::transactions as bodies;

            crate::backend_tests!($backend:
                aborted::{
                    closure_whose_transaction_has_ended_fails,
                    closure_that_has_committed_is_not_retried,
                    methods_in_an_aborted_transaction_have_no_effect,
                    methods_after_the_end_of_the_transaction_have_no_effect,
                },
                untracked::{
                    untracked_transaction_is_refused_and_not_ended,
                    untracked_transaction_without_a_query_is_refused,
                    leases_in_an_untracked_transaction_are_refused,
                },
                depth::{
                    a_panic_in_a_nested_transaction_rolls_back_all,
                    ok_at_another_depth_is_an_error_and_rolls_back,
                },
                isolation_levels::{
                    isolation_level_applies_to_one_transaction,
                    unsupported_options_are_rejected,
                    read_only_transaction_writes_nothing_and_restores_the_session,
                    locks_slots_and_numbers_work_in_run_transaction,
                    object_lock_requires_fresh_reads,
                },
                retries::{
                    deadlock_victims_are_retried_until_they_succeed,
                    application_error_is_not_retried,
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
                bodies!(Struct);
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
