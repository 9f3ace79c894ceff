//! The tests that each engine runs, by module.

mod core_list;

pub(crate) use core_list::core_tests;

/// The tests that run on every engine.
macro_rules! all_tests {
    ($backend:ident) => {
        crate::core_tests!($backend);
        crate::session_tests!($backend);
        crate::owner_tests!($backend);
    };
}
pub(crate) use all_tests;

/// The tests that need the owner of the tables, or many connections. Of an engine with users, the others run as one with few
/// privileges: see `least_privilege.rs`.
macro_rules! owner_tests {
    ($backend:ident) => {
        crate::connection_tests!($backend);
        crate::input_tests!($backend);
        mod replicas {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::backend_tests!($backend:
                application_migrations::{
                    replicas_killed_at_each_statement_get_to_the_end,
                    list_is_read_again_under_the_lock,
                },
            );
        }

        crate::backend_tests!($backend:
            lock_pool::{
                lock_pools_and_connections_exclude_each_other,
                waiters_borrow_a_connection_for_each_object,
                requests_for_free_locks_leave_a_connection_to_others,
                free_lock_of_a_pool_is_acquired_however_short_the_limit,
                lock_pools_and_connections_share_the_permits,
                stopped_pool_tries_nothing,
                held_object_is_not_waited_for,
                unusable_or_held_slot_is_not_waited_for,
                slot_waiter_on_a_pool_is_woken_by_a_leased_slot,
                transaction_is_run_again_after_its_connection_was_lost,
                transaction_of_a_pool_is_retried_on_request_only,
                locked_transaction_of_a_pool_waits_without_a_connection,
                transaction_is_retried_behind_another_while_no_connection_is_made,
                requests_are_listed_until_they_end,
                retried_transaction_is_one_request,
                connection_with_an_untracked_transaction_is_lent_once,
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
                leader_that_is_asked_to_release_resigns,
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
                standby_of_a_registered_semaphore_is_elected_when_the_lease_ends,
                node_with_a_too_short_lease_pauses_between_its_grants,
            },
            timer::{
                each_tick_is_run_by_one_node,
                tick_due_before_the_first_answer_is_run,
                tick_of_a_killed_node_is_not_repeated,
                failed_tick_is_not_repeated,
                tick_of_a_cron_expression_is_run_by_one_node,
                stop_ends_a_wait_for_a_tick,
                tick_that_is_asked_to_release_ends,
                unusable_jobs_are_refused,
                ticks_are_not_repeated_after_the_clock_was_set_back,
                ticks_before_an_unused_grant_are_not_repeated,
                force_release_ends_the_wait_after_the_clock_was_set_back,
                nodes_with_different_periods_share_ticks,
            },
            timer_grants::{
                error_after_a_grant_does_not_skip_the_tick,
                lease_that_ends_before_the_call_does_not_skip_the_tick,
                node_that_hangs_after_the_grant_leaves_later_ticks_to_others,
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
pub(crate) use owner_tests;

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
        mod largest_numbers {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                capacity::{
                    maximum_permits_are_all_granted,
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
            application_migrations::{
                four_replicas_run_each_migration_once,
                migrations_run_in_order_and_only_if_pending,
                migrations_in_an_open_transaction_are_refused,
                failed_migration_of_the_application_leaves_no_lock,
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
            testing::{
                moved_lease_is_renewed_or_lost,
                standby_takes_a_moved_lease_over,
                minimum_hold_time_is_moved,
                object_is_held_as_by_another,
                slots_are_held_as_by_another,
                attempts_to_lock_an_object_fail_as_chosen,
                waits_of_a_lock_pool_fail_as_chosen,
                attempts_to_acquire_a_slot_fail_as_chosen,
                guard_loses_its_slot_as_chosen,
                tick_whose_lease_is_moved_is_lost,
            },
            events::{
                tracing_records_acquired_unavailable_timeout_and_released,
                held_time_starts_at_the_grant,
                tracing_records_the_outcomes_of_slots,
                tracing_records_a_lost_slot,
                subscriber_that_panics_ends_neither_notifications_nor_renewals,
                tracing_has_spans_of_waits_and_holds,
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
                shared_locks::{
                    writer_that_waits_for_a_writer_keeps_no_reader_out,
                    mark_of_a_clock_that_was_set_back_keeps_no_reader_out,
                    row_of_a_shared_lock_is_committed_before_the_request_waits,
                },
            );
            mod slots {
                use super::$backend;
                use crate::behaviour::slots as bodies;

                crate::backend_tests!($backend:
                    leases::{
                        force_release_all_in_a_snapshot_is_refused,
                    },
                    rows::{
                        acquire_timeout_holds_while_a_resize_is_stalled,
                        purge_keeps_what_is_registered_meanwhile,
                    },
                    several::{
                        permits_of_a_slow_connection_are_granted,
                    },
                );
            }
        }
    };
}
pub(crate) use many_writers_tests;

/// The tests of [`core_tests`](crate::core_tests) in which this crate sends nearly each of its statements. They run alone where a
/// connection, or a pooler, passes statements on.
macro_rules! statement_tests {
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
            },
            nesting::{
                lock_is_reentrant,
                waiter_does_not_keep_the_holder_from_its_lock,
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
                    force_release_all_of_an_unknown_semaphore_is_an_error,
                    remaining_leases_use_the_database_clock,
                },
                fences::{
                    raised_fences_are_larger_than_lost_ones,
                    a_stale_writer_is_stopped_by_pin_slot,
                },
                permits::{
                    lowered_permits_are_never_exceeded,
                    lowered_permits_refuse_nothing_while_a_slot_is_free,
                },
                release_requests::{
                    request_is_for_one_holder,
                    data_is_of_one_holder,
                    guard_is_asked_to_release,
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
                    locked_transactions_are_retried_and_locked_again,
                    application_error_is_not_retried,
                },
            );
        }
    };
}
pub(crate) use statement_tests;

/// The tests of [`core_tests`](crate::core_tests) that send what [`statement_tests`](crate::statement_tests) do not: requests for
/// several objects, and the statements of waiters.
macro_rules! waiter_tests {
    ($backend:ident) => {
        mod waiters {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::backend_tests!($backend:
                multi_lock::{
                    all_or_none,
                    order_of_ids_does_not_matter,
                },
            );
            mod slots {
                use super::$backend;
                use crate::behaviour::slots as bodies;

                crate::backend_tests!($backend:
                    leases::{
                        waiter_gets_the_slot_when_it_is_released,
                    },
                    renewer_stop::{
                        nothing_is_held_for_a_stopped_caller,
                    },
                    transaction_slots::{
                        waiter_gets_the_slot_when_a_transaction_ends,
                    },
                );
            }
        }
    };
}
pub(crate) use waiter_tests;

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
                    each_holder_of_a_shared_lock_is_shown,
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

/// The tests of renewers whose server is silent.
macro_rules! silent_server_tests {
    ($backend:ident) => {
        mod silent {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                renewers::{
                    guard_is_lost_in_time_while_its_renewal_hangs,
                    renewal_through_a_stalled_network_extends_no_ended_lease,
                    guard_outlives_the_server_that_has_granted_it,
                    renewals_go_on_after_a_silence,
                    unresponsive_database_does_not_delay_other_renewers,
                },
            );
        }
    };
}
pub(crate) use silent_server_tests;

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
