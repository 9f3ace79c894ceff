//! The promises of `docs/guarantees.md`, each as one test body that runs on every engine.
//!
//! `promises` has the bodies, `support` what they stand on; the modules `postgres`, `mysql` (MySQL or
//! MariaDB, whichever `MYSQL_DATABASE_URL` names) and `sqlite` list them for their engine, and add what
//! is true of that engine only.

mod behaviour;
mod client_library;
mod crash;
mod least_privilege;
mod method_names;
mod mysql;
mod pgbouncer;
mod postgres;
mod schema;
mod sqlite;
mod subprocess;
mod support;

/// One `#[test]` for each body of the modules in `bodies`, on one engine; with the attributes before its name.
macro_rules! backend_tests {
    ($backend:ident: $($module:ident::{$($(#[$attribute:meta])* $name:ident),* $(,)?}),* $(,)?) => {
        $(mod $module {
            $(#[test]
            $(#[$attribute])*
            fn $name() {
                super::bodies::$module::$name::<super::$backend>();
            })*
        })*
    };
}
pub(crate) use backend_tests;

/// The bodies that all engines share.
macro_rules! all_tests {
    ($backend:ident) => {
        crate::core_tests!($backend);
        crate::session_tests!($backend);

        crate::backend_tests!($backend:
            errors::{
                lock_object_needs_a_transaction,
                a_missing_table_names_migrate,
                read_only_connection_is_a_typed_error,
                a_stale_transaction_is_refused,
                purge_and_migrate_need_to_be_outside_a_transaction,
            },
            tables::{
                eight_servers_migrate_at_once,
                down_migrations_leave_nothing,
                our_migration_sorts_before_the_applications,
                a_missing_table_of_slots_names_migrate,
                a_missing_table_of_sequences_names_migrate,
            },
            lock_pool::{
                waiters_leave_connections_to_others,
                lock_pools_and_connections_exclude_each_other,
                stopped_waiter_does_not_run,
                wait_for_a_connection_of_the_pool_ends,
                wait_on_a_pool_ends_after_its_limit,
                error_and_panic_on_a_pool_roll_back_and_release,
            },
            large::{
                fifty_thousand_transient_locks_are_one_request,
                a_large_request_locks_all_or_none,
                too_many_kept_locks_are_refused,
            },
            events::{
                tracing_records_acquired_unavailable_timeout_and_released,
                held_time_starts_at_the_grant,
            },
            semaphore_state_machine::{
                semaphores_behave_as_their_model,
            },
            session_state::{
                drawing_a_number_keeps_the_last_inserted_id,
                locking_an_object_keeps_the_last_inserted_id,
                semaphores_keep_the_last_inserted_id,
                panic_restores_session_limits,
            },
        );
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
pub(crate) use all_tests;

/// Those of them that need neither migrations nor a session of their own: what an application does with
/// the tables that are there, whichever way it has to the database.
macro_rules! core_tests {
    ($backend:ident) => {
        use crate::behaviour as bodies;

        crate::backend_tests!($backend:
            exclusion::{
                waiter_gets_the_lock_when_the_holder_commits,
                waiter_gets_the_lock_when_the_holder_rolls_back,
                waiter_gets_the_lock_when_the_holders_connection_is_dropped,
                waiter_gets_the_lock_when_the_holders_process_is_killed,
                different_ids_wait_only_where_the_engine_has_one_writer,
                kept_and_transient_exclude_each_other,
            },
            contention::{
                thirty_two_connections_lose_no_update_on_a_transient_lock,
                thirty_two_connections_lose_no_update_on_a_kept_lock,
                thirty_two_connections_lose_no_update_on_both_kinds_of_locks,
                sixteen_connections_take_two_of_ten_ids_each,
                lock_object_in_own_transactions_loses_no_update,
            },
            waiting::{
                wait_ends_after_its_timeout,
                free_lock_is_acquired_with_a_zero_timeout,
                short_timeout_is_not_prolonged,
                transaction_survives_a_timeout,
                timeout_holds_while_the_lock_changes_hands,
                no_wait_returns_unavailable,
                try_of_a_held_lock_returns_immediately,
                failed_try_leaves_the_transaction_usable,
                too_long_wait_is_rejected,
                connection_waits_again_after_a_timeout,
            },
            idle_sessions::{
                idle_transaction_does_not_block_others,
                holder_of_all_slots_does_not_block_other_semaphores,
                a_stopped_process_keeps_its_lock_until_it_is_killed,
            },
            nesting::{
                lock_is_reentrant,
                lock_in_a_savepoint_ends_as_documented,
                with_object_lock_in_a_transaction_is_a_savepoint,
                opposite_orders_deadlock_or_run_in_turn,
            },
            transaction_end::{
                closure_error_rolls_back_and_releases,
                panic_rolls_back_releases_and_propagates,
                pooled_connection_is_returned_without_the_lock,
                closure_error_may_be_any_type_made_from_error,
            },
            multi_lock::{
                all_or_none,
                order_of_ids_does_not_matter,
                duplicate_ids_are_locked_once,
                no_ids_lock_nothing,
                failed_try_of_several_releases_the_free_ones,
            },
            ids::{
                ids_are_compared_as_bytes,
                longest_id_is_not_truncated,
                unusable_ids_are_refused_before_any_statement,
                sql_injection_in_ids_has_no_effect,
            },
            retention::{
                kept_rows_stay_until_purged,
                purge_leaves_held_rows_alone,
                purge_works_while_others_lock,
            },
        );
        mod slots {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                capacity::{
                sixty_four_connections_never_hold_more_than_the_permits,
                eight_connections_always_get_one_of_eight_slots,
                a_full_semaphore_refuses_without_a_write,
                many_permits_are_all_granted,
                maximum_permits_are_all_granted,
            },
                fences::{
                    expired_lease_is_lost_when_a_transaction_holds_the_slot,
                fences_grow_and_never_repeat,
                fences_survive_purge_and_a_clock_that_was_set_back,
                fences_grow_between_slots_after_the_clock_was_set_back,
                fences_grow_over_a_slot_above_the_permits,
                fences_grow_over_a_slot_that_was_purged,
                raised_fences_are_larger_than_lost_ones,
                stale_writer_is_refused_by_its_fence,
                a_stale_writer_is_stopped_by_pin_slot,
            },
                guards::{
                    guard_is_renewed_until_it_is_dropped,
                    guard_release_returns_the_lease_state,
                    force_released_slot_is_noticed_by_its_guard,
                    guard_that_is_not_renewed_in_time_stays_lost,
                    guard_survives_a_cut_connection,
                    many_guards_are_renewed_by_one_statement,
                    #[cfg_attr(not(target_os = "linux"), ignore = "threads are not listed by name")]
                    many_guards_are_renewed_by_one_thread,
                    run_releases_the_slot_after_success_error_and_panic,
                    paused_process_notices_the_lost_lease,
                },
                transaction_slots::{
                a_slot_is_held_as_long_as_its_transaction,
                a_slot_is_free_when_its_holder_is_killed,
                leases_and_slots_of_transactions_count_together,
                waiter_gets_the_slot_when_a_transaction_ends,
                a_slot_of_a_savepoint_is_held_by_the_transaction,
            },
                leases::{
                slot_is_renewed_and_released,
                renewing_an_expired_lease_reports_it,
                slot_granted_to_another_is_lost,
                releasing_twice_or_with_a_forged_token_changes_nothing,
                force_release_all_releases_every_slot,
                remaining_leases_use_the_database_clock,
                a_long_transaction_does_not_shorten_the_lease,
                short_lease_expires,
                unusable_leases_are_refused,
                hold_at_least_delays_the_release,
                waiter_gets_the_slot_when_it_is_released,
            },
                queues::{
                    query_rate_does_not_grow_with_waiters,
                    waiters_of_another_database_do_not_block,
                },
                permits::{
                    more_permits_are_more_slots_while_a_transaction_holds_one,
                more_permits_are_more_slots,
                fewer_permits_revoke_no_slot,
                fewer_permits_count_holding_transactions,
                fewer_permits_count_renewing_transactions,
                two_versions_at_once_never_hold_more_than_the_larger_number,
                lowered_permits_are_never_exceeded,
                unusable_numbers_and_names_are_refused,
                names_are_compared_as_bytes_and_kept_whole,
            },
                renewers::{
                    guards_of_two_databases_are_renewed,
                    release_all_releases_the_guards_of_one_renewer,
                    #[cfg_attr(not(target_os = "linux"), ignore = "threads are not listed by name")]
                    renewer_stops_when_it_and_its_guards_are_dropped,
                },
                rows::{
                thirty_two_connections_use_a_new_semaphore,
                register_takes_all_variants_of_an_enum,
                purge_removes_what_is_free_and_old,
                purge_works_while_others_acquire,
                purge_waits_for_no_open_transaction,
            },
                transactions::{
                acquisition_takes_effect_at_commit,
                a_release_takes_effect_at_commit,
                a_new_semaphore_in_an_open_transaction_is_an_error,
            },
            );
        }
        mod sequences {
            use super::$backend;
            use crate::behaviour::sequences as bodies;

            crate::backend_tests!($backend:
                numbering::{
                    numbers_have_neither_gaps_nor_repeats,
                    thirty_two_connections_use_a_new_sequence,
                    rolled_back_number_is_drawn_again,
                    number_of_a_rolled_back_savepoint_is_drawn_again,
                    number_of_a_lost_connection_is_drawn_again,
                    draw_blocks_until_previous_draw_commits,
                    sequences_do_not_wait_for_each_other,
                    several_numbers_are_consecutive,
                    last_number_does_not_wait_for_a_draw,
                },
                arguments::{
                    a_draw_needs_a_transaction,
                    exhausted_sequence_leaves_the_transaction_usable,
                    unusable_sequences_are_refused,
                    names_of_sequences_are_compared_as_bytes,
                    start_applies_to_the_first_draw_only,
                    large_start_does_not_exhaust_a_started_sequence,
                    a_read_only_transaction_draws_nothing,
                },
                isolation_levels::{
                    default_level_draws_without_gaps_or_repeats,
                },
            );
        }
        mod transactions {
            use super::$backend;
            use crate::behaviour::transactions as bodies;

            crate::backend_tests!($backend:
                aborted::{
                    closure_whose_transaction_has_ended_fails,
                    statements_after_the_end_of_a_transaction_are_not_committed,
                    closure_that_has_committed_is_not_retried,
                    methods_in_an_aborted_transaction_have_no_effect,
                    a_panic_in_a_nested_transaction_rolls_back_all,
                    a_panic_under_a_lock_in_a_transaction_rolls_back_to_the_lock,
                    ok_at_another_depth_is_an_error_and_rolls_back,
                    an_error_at_another_depth_rolls_back_all,
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
                    closure_receives_the_attempt_number,
                    retries_are_limited,
                    application_error_is_not_retried,
                    database_error_is_found_in_any_error_type,
                    nested_run_transaction_does_not_retry,
                    panic_rolls_back_and_propagates,
                    zero_attempts_are_rejected,
                    lock_timeouts_are_retried_on_request,
                    retry_is_recorded_by_tracing,
                },
                upgrades::{
                    shared_readers_that_update_deadlock,
                    readers_for_update_take_turns,
                    retry_resolves_the_upgrade_deadlock,
                    opposite_orders_deadlock_though_read_for_update,
                    same_order_does_not_deadlock,
                    object_locks_are_sorted_and_rows_are_not,
                    an_update_of_an_old_read_is_lost_or_refused,
                },
            );
        }
    };
}
pub(crate) use core_tests;

/// Those of different ids that several hold at the same time, which one writer can't.
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

/// Those that set something in a session and find it there again, or need a session for each of many connections.
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
