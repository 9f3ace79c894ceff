//! The tests that each engine runs, by module.

mod core_list;

pub(crate) use core_list::core_tests;

/// The tests that run on every engine.
macro_rules! all_tests {
    ($backend:ident) => {
        crate::core_tests!($backend);
        crate::session_tests!($backend);
        crate::connection_tests!($backend);
        crate::input_tests!($backend);

        crate::backend_tests!($backend:
            lock_pool::{
                lock_pools_and_connections_exclude_each_other,
                waiters_borrow_a_connection_for_each_object,
                requests_for_free_locks_leave_a_connection_to_others,
                free_lock_of_a_pool_is_acquired_however_short_the_limit,
                lock_pools_and_connections_share_the_permits,
                stopped_pool_tries_no_slot,
                unusable_or_held_slot_is_not_waited_for,
                slot_waiter_on_a_pool_is_woken_by_a_leased_slot,
            },
            pool_waits::{
                waiters_leave_connections_to_others,
                stopped_waiter_does_not_run,
                wait_for_a_connection_of_the_pool_ends,
                wait_goes_on_without_a_connection,
                free_is_acquired_while_an_attempt_does_not_return,
                error_and_panic_roll_back_and_release,
                wait_ends_after_its_limit,
                wait_for_a_lock_ends_after_the_time_out_of_the_pool,
                transaction_in_a_test_transaction_is_a_savepoint,
            },
            leader::{
                standby_is_elected_when_the_leader_stops,
                standby_is_elected_when_the_leaders_process_is_killed,
                lost_leader_ends_and_stands_again,
                as_many_leaders_as_permits,
                leader_that_fails_or_panics_releases_its_slot,
                leader_that_returns_resigns,
                leader_that_stops_its_own_token_resigns,
                standby_survives_errors_of_the_database_and_the_pool,
                leader_with_unusable_arguments_or_without_tables_is_an_error,
            },
            leader_polling::{
                idle_standbys_send_few_statements,
                long_wait_of_a_renewer_sends_few_statements,
                waiters_ask_at_the_shortest_of_their_intervals,
                node_with_a_too_short_lease_pauses_between_its_grants,
            },
            timer::{
                each_tick_is_run_by_one_node,
                tick_of_a_killed_node_is_not_repeated,
                failed_tick_is_not_repeated,
                stop_ends_a_wait_for_a_tick,
                unusable_jobs_are_refused,
                ticks_are_not_repeated_after_the_clock_was_set_back,
                nodes_with_different_periods_share_ticks,
            },
            timer_grants::{
                error_after_a_grant_does_not_skip_the_tick,
                lease_that_ends_before_the_call_does_not_skip_the_tick,
                node_stopped_at_the_grant_leaves_the_tick_to_others,
                caller_stopped_at_the_grant_leaves_no_minimum_hold_time,
            },
            shutdown::{
                shutdown_waits_until_closures_have_ended,
                shutdown_cuts_off_what_does_not_end,
                slot_that_cannot_be_released_is_not_listed_as_released,
                calls_of_a_shutdown_do_not_wait_for_each_other,
                shutdown_waits_for_what_begins_meanwhile,
                shutdown_waits_for_a_node_that_looks_for_a_tick,
            },
        );
    };
}
pub(crate) use all_tests;

/// The tests of many inputs and of long series of calls, and those that empty tables. They run on every kind of connection.
macro_rules! input_tests {
    ($backend:ident) => {
        crate::backend_tests!($backend:
            large::{
                fifty_thousand_transient_locks_are_one_request,
                a_large_request_locks_all_or_none,
                a_request_for_many_free_objects_outlasts_its_limit,
                too_many_kept_locks_are_refused,
            },
            semaphore_state_machine::{
                semaphores_behave_as_their_model,
            },
        );
        mod waiting_application {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                renewer_stop::{
                    guard_lives_while_all_connections_of_the_application_wait,
                },
            );
        }
        mod emptied_tables {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                fences::{
                    missing_fence_row_is_restored,
                },
            );
        }
        mod properties {
            use super::$backend;
            use crate::behaviour::properties as bodies;

            crate::backend_tests!($backend:
                forged_slots::{
                    property_slot_parts,
                },
                ids::{
                    property_id_text,
                    property_id_pair,
                    property_lock_all_or_none,
                },
                leases::{
                    property_lease_duration,
                    property_purge_age,
                },
                names::{
                    property_semaphore_name,
                    property_holder_text,
                    guards_of_any_names_are_renewed_and_released,
                },
                numbers::{
                    property_permits,
                    property_sequence_name,
                    property_drawn_numbers,
                },
                retries::{
                    property_retry_attempts,
                },
                waits::{
                    property_wait,
                },
            );
        }
    };
}
pub(crate) use input_tests;

/// The tests that need the owner of the tables, or all sessions of the database. They run on every kind of connection.
macro_rules! connection_tests {
    ($backend:ident) => {
        crate::backend_tests!($backend:
            errors::{
                lock_object_needs_a_transaction,
                refusals_name_what_was_requested,
                a_missing_table_names_migrate,
                read_only_connection_is_a_typed_error,
                a_stale_transaction_is_refused,
                purge_and_migrate_need_to_be_outside_a_transaction,
            },
            tables::{
                eight_servers_migrate_at_once,
                failed_migration_leaves_no_lock_and_no_transaction,
                down_migrations_leave_nothing,
                our_migration_sorts_before_the_applications,
                a_missing_table_of_slots_names_migrate,
                a_missing_table_of_sequences_names_migrate,
                migrate_writes_only_what_is_missing,
                migrate_names_what_tables_of_another_version_lack,
                migrations_that_run_between_two_looks_are_seen,
            },
            events::{
                tracing_records_acquired_unavailable_timeout_and_released,
                held_time_starts_at_the_grant,
                tracing_records_the_outcomes_of_slots,
                tracing_records_a_lost_slot,
            },
            session_state::{
                drawing_a_number_keeps_the_last_inserted_id,
                locking_an_object_keeps_the_last_inserted_id,
                semaphores_keep_the_last_inserted_id,
                panic_restores_session_limits,
            },
        );
        mod untracked_transactions {
            use super::$backend;
            use crate::behaviour::transactions as bodies;

            crate::backend_tests!($backend:
                untracked::{
                    migrate_in_an_untracked_transaction_is_refused,
                },
            );
        }
    };
}
pub(crate) use connection_tests;

/// The tests of several sessions that hold different ids at the same time, which SQLite's one writer can't.
macro_rules! many_writers_tests {
    ($backend:ident) => {
        mod many_writers {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::backend_tests!($backend:
                multi_lock::{
                    short_waits_do_not_add_up,
                },
            );
            mod slots {
                use super::$backend;
                use crate::behaviour::slots as bodies;

                crate::backend_tests!($backend:
                    rows::{
                        acquire_timeout_holds_while_a_resize_is_stalled,
                    },
                );
            }
        }
    };
}
pub(crate) use many_writers_tests;

/// The tests of what a server shows of object locks. SQLite shows nothing.
macro_rules! held_locks_tests {
    ($backend:ident) => {
        mod shown {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::backend_tests!($backend:
                held_locks::{
                    no_locks_are_shown_when_none_is_held,
                    held_kept_lock_is_shown_with_its_waiters,
                    held_transient_lock_is_shown_with_its_waiters,
                    ids_are_shown_as_they_are,
                    locks_of_another_database_are_not_shown,
                    locks_are_shown_in_an_open_transaction,
                    locks_are_shown_while_the_table_is_locked,
                    unusable_limit_of_locks_is_refused,
                },
            );
        }
    };
}
pub(crate) use held_locks_tests;

/// The tests that set something in a session and read it later, or need a session for each of many connections.
macro_rules! session_tests {
    ($backend:ident) => {
        mod session {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::backend_tests!($backend:
                waiting::{
                    session_limits_are_restored_after_a_wait,
                    timeout_holds_while_the_lock_changes_hands_quickly,
                },
            );
            mod slots {
                use super::$backend;
                use crate::behaviour::slots as bodies;

                crate::backend_tests!($backend:
                    transactions::{
                        a_stale_transaction_is_refused_a_slot,
                        session_isolation_level_does_not_matter_outside_transactions,
                    },
                );
            }
            mod sequences {
                use super::$backend;
                use crate::behaviour::sequences as bodies;

                crate::backend_tests!($backend:
                    numbering::{
                        failed_draw_is_retried_on_its_connection,
                    },
                    isolation_levels::{
                        levels_above_read_committed_draw_without_gaps_or_repeats,
                        draw_after_an_old_snapshot_is_new_or_fails,
                    },
                );
            }
        }
    };
}
pub(crate) use session_tests;
