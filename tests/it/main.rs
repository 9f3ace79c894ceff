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
macro_rules! tests_of {
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
pub(crate) use tests_of;

/// The bodies that all engines share.
macro_rules! all_promises {
    ($backend:ident) => {
        crate::core_promises!($backend);
        crate::session_promises!($backend);

        crate::tests_of!($backend:
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
                semaphores_do_what_their_model_says,
            },
            session_state::{
                drawing_a_number_keeps_the_last_inserted_id,
                locking_an_object_keeps_the_last_inserted_id,
                semaphores_keep_the_last_inserted_id,
                a_panic_leaves_no_limit,
            },
        );
        mod emptied_tables {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::tests_of!($backend:
                fences::{
                    missing_fence_row_is_restored,
                },
            );
        }
        mod properties {
            use super::$backend;
            use crate::behaviour::properties as bodies;

            crate::tests_of!($backend:
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
pub(crate) use all_promises;

/// Those of them that need neither migrations nor a session of their own: what an application does with
/// the tables that are there, whichever way it has to the database.
macro_rules! core_promises {
    ($backend:ident) => {
        use crate::behaviour as bodies;

        crate::tests_of!($backend:
            exclusion::{
                a_waiter_goes_on_when_the_holder_commits,
                a_waiter_goes_on_when_the_holder_rolls_back,
                a_waiter_goes_on_when_the_holders_connection_is_dropped,
                a_waiter_goes_on_when_the_holders_process_is_killed,
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
                a_wait_ends_after_the_time_asked_for,
                free_lock_is_acquired_with_a_zero_timeout,
                a_short_wait_for_a_held_lock_is_short,
                a_transaction_survives_the_end_of_a_wait,
                a_wait_ends_in_time_while_the_lock_changes_hands,
                no_wait_returns_unavailable,
                trying_a_held_lock_answers_at_once,
                trying_in_a_transaction_leaves_it_usable,
                a_wait_that_is_too_long_is_refused,
                a_connection_whose_wait_ended_waits_again,
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
                opposite_orders_end_in_a_deadlock_or_one_after_the_other,
            },
            transaction_end::{
                an_error_of_the_closure_rolls_back_and_frees,
                a_panic_rolls_back_frees_and_goes_on,
                a_pooled_connection_comes_back_without_the_lock,
                closures_may_return_any_error_made_from_ours,
            },
            multi_lock::{
                all_or_none,
                the_order_of_names_does_not_matter,
                duplicates_are_folded,
                no_ids_lock_nothing,
                trying_several_frees_those_that_were_free,
            },
            ids::{
                ids_are_compared_as_bytes,
                the_longest_id_is_locked_whole,
                unusable_ids_are_refused_before_any_statement,
                hostile_ids_are_only_ids,
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

            crate::tests_of!($backend:
                capacity::{
                sixty_four_connections_never_hold_more_than_the_permits,
                eight_connections_always_get_one_of_eight_slots,
                a_full_semaphore_refuses_without_a_write,
                many_permits_are_all_granted,
                the_most_permits_are_all_there,
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
                    slot_of_a_run_is_released_however_the_closure_ends,
                    paused_process_notices_the_lost_lease,
                },
                transaction_slots::{
                a_slot_is_held_as_long_as_its_transaction,
                a_slot_is_free_when_its_holder_is_killed,
                leases_and_slots_of_transactions_count_together,
                a_waiter_goes_on_when_a_transaction_ends,
                a_slot_of_a_savepoint_is_held_by_the_transaction,
            },
                leases::{
                a_slot_is_refreshed_and_released,
                renewing_an_expired_lease_reports_it,
                a_slot_that_was_granted_again_is_lost,
                releasing_twice_or_with_a_forged_token_changes_nothing,
                force_release_all_releases_every_slot,
                held_slots_are_shown_by_the_databases_clock,
                a_long_transaction_does_not_shorten_the_lease,
                a_short_lease_ends_by_itself,
                unusable_leases_are_refused,
                a_slot_is_kept_at_least_as_long_as_asked_for,
                a_waiter_gets_a_slot_that_is_released,
            },
                queues::{
                    query_rate_does_not_grow_with_waiters,
                    waiters_for_another_database_are_not_in_the_way,
                },
                permits::{
                    more_permits_are_more_slots_while_a_transaction_holds_one,
                more_permits_are_more_slots,
                fewer_permits_revoke_no_slot,
                fewer_permits_count_holding_transactions,
                fewer_permits_count_refreshing_transactions,
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
                a_new_name_is_used_by_thirty_two_at_once,
                registering_is_for_all_of_an_enum,
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

            crate::tests_of!($backend:
                numbering::{
                    numbers_have_neither_gaps_nor_repeats,
                    a_new_sequence_is_used_by_thirty_two_at_once,
                    rolled_back_number_is_drawn_again,
                    number_of_a_rolled_back_savepoint_is_drawn_again,
                    number_of_a_lost_connection_is_drawn_again,
                    draw_blocks_until_previous_draw_commits,
                    sequences_do_not_wait_for_each_other,
                    several_numbers_are_in_a_row,
                    the_last_number_is_read_without_waiting,
                },
                arguments::{
                    a_draw_needs_a_transaction,
                    the_end_of_the_numbers_leaves_the_transaction_usable,
                    unusable_sequences_are_refused,
                    names_of_sequences_are_compared_as_bytes,
                    start_applies_to_the_first_draw_only,
                    a_late_start_does_not_end_a_sequence_that_has_begun,
                    a_read_only_transaction_draws_nothing,
                },
                isolation_levels::{
                    at_the_default_level_nothing_is_skipped_or_repeated,
                },
            );
        }
        mod transactions {
            use super::$backend;
            use crate::behaviour::transactions as bodies;

            crate::tests_of!($backend:
                aborted::{
                    closure_whose_transaction_has_ended_fails,
                    statements_after_the_end_of_a_transaction_are_not_committed,
                    closure_that_has_committed_is_not_retried,
                    methods_in_a_transaction_that_was_given_up_lock_and_draw_nothing,
                    a_panic_in_a_nested_transaction_rolls_back_all,
                    a_panic_under_a_lock_in_a_transaction_rolls_back_to_the_lock,
                    ok_at_another_depth_is_an_error_and_rolls_back,
                    an_error_at_another_depth_rolls_back_all,
                },
                isolation_levels::{
                    the_level_is_that_of_the_transaction_alone,
                    unsupported_options_are_rejected,
                    a_read_only_transaction_writes_nothing_and_leaves_nothing_behind,
                    locks_slots_and_numbers_work_inside,
                    an_object_lock_asks_for_fresh_reads,
                },
                retries::{
                    deadlock_victims_are_retried_until_they_succeed,
                    closure_receives_the_attempt_number,
                    retries_are_limited,
                    application_error_is_not_retried,
                    any_type_of_error_shows_the_databases,
                    nested_run_transaction_does_not_retry,
                    a_panic_rolls_back_and_goes_on,
                    no_attempt_is_refused,
                    lock_timeouts_are_retried_on_request,
                    retry_is_recorded_by_tracing,
                },
                upgrades::{
                    shared_readers_that_update_deadlock,
                    readers_for_update_take_turns,
                    retry_resolves_the_upgrade_deadlock,
                    opposite_orders_deadlock_though_read_for_update,
                    same_order_does_not_deadlock,
                    object_locks_sort_what_rows_do_not,
                    an_update_of_an_old_read_is_lost_or_refused,
                },
            );
        }
    };
}
pub(crate) use core_promises;

/// Those of different ids that several hold at the same time, which one writer can't.
macro_rules! many_writers_promises {
    ($backend:ident) => {
        mod many_writers {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::tests_of!($backend:
                multi_lock::{
                    short_waits_do_not_add_up,
                },
            );
            mod slots {
                use super::$backend;
                use crate::behaviour::slots as bodies;

                crate::tests_of!($backend:
                    rows::{
                        acquire_timeout_holds_while_a_resize_is_stalled,
                    },
                );
            }
        }
    };
}
pub(crate) use many_writers_promises;

/// Those that set something in a session and find it there again, or need a session for each of many connections.
macro_rules! session_promises {
    ($backend:ident) => {
        mod session {
            use super::$backend;
            use crate::behaviour as bodies;

            crate::tests_of!($backend:
                waiting::{
                    the_sessions_limits_are_as_before_after_a_wait,
                    a_wait_ends_in_time_while_the_lock_changes_hands_quickly,
                },
            );
            mod slots {
                use super::$backend;
                use crate::behaviour::slots as bodies;

                crate::tests_of!($backend:
                    transactions::{
                        a_stale_transaction_is_refused_a_slot,
                        the_sessions_isolation_level_does_not_matter_outside,
                    },
                );
            }
            mod sequences {
                use super::$backend;
                use crate::behaviour::sequences as bodies;

                crate::tests_of!($backend:
                    numbering::{
                        a_draw_that_failed_is_tried_again_on_its_connection,
                    },
                    isolation_levels::{
                        above_read_committed_nothing_is_skipped_or_repeated,
                        a_draw_after_an_old_snapshot_is_new_or_fails,
                    },
                );
            }
        }
    };
}
pub(crate) use session_promises;
