//! The tests that run on every engine: as an unprivileged user where the engine has users, and on connections of diesel-async.

/// The tests that need neither migrations nor a session of their own. They run with an unprivileged user and through
/// a pooler too.
macro_rules! core_tests {
    ($backend:ident) => {
        mod statements {
            use super::$backend;

            crate::statement_tests!($backend);
        }
        crate::waiter_tests!($backend);

        use crate::behaviour as bodies;

        crate::backend_tests!($backend:
            exclusion::{
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
                timeout_holds_while_the_lock_changes_hands,
                no_wait_returns_unavailable,
                try_of_a_held_lock_returns_immediately,
                failed_try_leaves_the_transaction_usable,
                try_with_another_wait_is_rejected,
                too_long_wait_is_rejected,
                connection_waits_again_after_a_timeout,
            },
            idle_sessions::{
                idle_transaction_does_not_block_others,
                holder_of_all_slots_does_not_block_other_semaphores,
                a_stopped_process_keeps_its_lock_until_it_is_killed,
            },
            nesting::{
                opposite_orders_deadlock_or_run_in_turn,
            },
            multi_lock::{
                duplicate_ids_are_locked_once,
                no_ids_lock_nothing,
                failed_try_of_several_releases_the_free_ones,
                refused_try_of_several_in_a_transaction_locks_none,
                timed_out_wait_for_several_in_a_transaction_locks_none_or_says_so,
            },
            ids::{
                ids_are_compared_as_bytes,
                longest_id_is_not_truncated,
                unusable_ids_are_refused_before_any_statement,
                sql_injection_in_ids_has_no_effect,
            },
            lists::{
                documented_statements_show_and_release_a_slot,
                empty_database_lists_nothing,
                semaphores_are_filtered_by_bytes,
                lists_do_not_wait_for_transactions,
                databases_are_listed_apart,
                unusable_list_options_are_refused,
            },
            shared_locks::{
                readers_share_an_object_and_exclude_writers,
                writers_exclude_readers,
                waiting_writer_goes_before_later_readers,
                writer_of_a_pool_goes_before_later_readers,
                writers_on_pools_of_what_the_other_reads_take_turns,
                readers_of_a_pool_enter_together,
                one_request_has_locks_of_both_kinds,
                shared_lock_is_not_upgraded,
                shared_lock_in_an_open_transaction_lasts_until_its_end,
                sixteen_readers_and_writers_see_no_half_update,
                requests_that_do_not_agree_are_refused,
            },
            retention::{
                purge_leaves_held_rows_alone,
                purge_ends_after_a_batch_that_is_not_full,
                purge_waits_for_no_held_row,
                purge_works_while_others_lock,
            },
        );
        mod slots {
            use super::$backend;
            use crate::behaviour::slots as bodies;

            crate::backend_tests!($backend:
                capacity::{
                    sixty_four_connections_never_hold_more_than_the_permits,
                    a_full_semaphore_refuses_without_a_write,
                    many_permits_are_all_granted,
                },
                fences::{
                    expired_lease_is_lost_when_a_transaction_holds_the_slot,
                    fences_grow_and_never_repeat,
                    fences_survive_purge_and_a_clock_that_jumps_backwards,
                    fences_grow_between_slots_after_the_clock_was_set_back,
                    fences_grow_over_a_slot_above_the_permits,
                    fences_grow_over_a_slot_that_was_purged,
                    stale_writer_is_refused_by_its_fence,
                },
                guards::{
                    guard_release_returns_the_lease_state,
                    requests_of_a_renewer_are_listed,
                    lease_ends_after_the_longest_hold,
                    lease_without_progress_ends,
                    limits_of_renewals_are_checked,
                    progress_has_the_lease_renewed,
                    force_released_slot_is_noticed_by_its_guard,
                    guard_that_is_not_renewed_in_time_stays_lost,
                    callback_of_a_lost_guard_delays_no_renewal,
                    guards_dropped_in_their_callbacks_delay_no_other_callback,
                    guard_survives_a_cut_connection,
                    pool_without_checks_recovers_from_cut_connections,
                    dropped_guard_is_released_when_its_row_is_unlocked,
                    many_guards_are_renewed_by_one_statement,
                    #[cfg_attr(not(target_os = "linux"), ignore = "threads are not listed by name")]
                    many_guards_are_renewed_by_one_thread,
                    try_run_releases_the_slot_after_success_error_and_panic,
                    paused_process_notices_the_lost_lease,
                },
                transaction_slots::{
                    a_slot_is_free_when_its_holder_is_killed,
                },
                leases::{
                    renewing_an_expired_lease_reports_it,
                    releasing_twice_or_with_a_forged_token_changes_nothing,
                    clock_that_was_set_back_does_not_delay_the_release,
                    a_long_transaction_does_not_shorten_the_lease,
                    short_lease_expires,
                    unusable_leases_are_refused,
                    hold_at_least_delays_the_release,
                    hold_time_lasts_after_the_clock_was_set_back,
                },
                queues::{
                    query_rate_does_not_grow_with_waiters,
                    waiters_of_another_database_do_not_block,
                    pools_of_two_databases_do_not_delay_each_other,
                },
                permits::{
                    more_permits_are_more_slots_while_a_transaction_holds_one,
                    more_permits_are_more_slots,
                    fewer_permits_revoke_no_slot,
                    fewer_permits_count_holding_transactions,
                    fewer_permits_count_renewing_transactions,
                    two_versions_at_once_never_hold_more_than_the_larger_number,
                    unusable_numbers_and_names_are_refused,
                    names_are_compared_as_bytes_and_kept_whole,
                },
                registered_permits::{
                    number_in_the_database_applies_to_each_attempt,
                    waits_obey_a_change_of_the_number,
                    changed_number_is_never_exceeded,
                    number_that_is_missing_or_unusable_is_an_error,
                },
                several::{
                    several_permits_are_held_as_one,
                    several_permits_are_acquired_beside_requests_for_one,
                    request_that_keeps_permits_does_not_wait_for_the_first_of_the_queue,
                    requests_for_several_permits_do_not_wait_for_each_other,
                    request_that_ends_leaves_no_permit_held,
                    guard_of_several_permits_is_lost_as_a_whole,
                    transaction_holds_several_permits_until_it_ends,
                    unusable_numbers_of_permits_are_refused,
                },
                release_requests::{
                    released_slot_shows_no_request,
                    slot_of_a_guard_is_handed_on,
                    holder_is_host_and_process_by_default,
                },
                renewers::{
                    guards_of_two_databases_are_renewed,
                    release_guards_releases_those_of_one_renewer,
                    #[cfg_attr(not(target_os = "linux"), ignore = "threads are not listed by name")]
                    renewer_stops_when_it_and_its_guards_are_dropped,
                },
                renewer_stop::{
                    stop_ends_the_waits_of_a_renewer,
                    stop_ends_the_wait_of_a_renewer_for_a_connection,
                },
                rows::{
                    thirty_two_connections_use_a_new_semaphore,
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
                    number_of_a_lost_connection_is_drawn_again,
                    sequences_do_not_wait_for_each_other,
                    several_numbers_are_consecutive,
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
                    statements_after_the_end_of_a_transaction_are_not_committed,
                    lost_connection_is_told_apart,
                },
                depth::{
                    a_panic_under_a_lock_in_a_transaction_rolls_back_to_the_lock,
                    an_error_at_another_depth_rolls_back_all,
                },
                retries::{
                    writes_of_earlier_attempts_are_gone,
                    retries_are_limited,
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
