//! The promises of the README's table, each as one test body that runs on every engine.
//!
//! `promises` has the bodies, `support` what they stand on; the modules `postgres`, `mysql` (MySQL or
//! MariaDB, whichever `MYSQL_DATABASE_URL` names) and `sqlite` list them for their engine, and add what
//! is true of that engine only.

mod crash;
mod mysql;
mod peer;
mod postgres;
mod promises;
mod schema;
mod sqlite;
mod support;

/// One `#[test]` for each body, on one engine.
macro_rules! tests_of {
    ($backend:ident: $($module:ident::{$($name:ident),* $(,)?}),* $(,)?) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                crate::promises::$module::$name::<super::$backend>();
            })*
        })*
    };
}
pub(crate) use tests_of;

/// The bodies that all engines share.
macro_rules! all_promises {
    ($backend:ident) => {
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
                a_transaction_survives_the_end_of_a_wait,
                a_wait_ends_in_time_while_the_lock_changes_hands,
                no_wait_is_an_error_that_says_held,
                trying_a_held_lock_answers_at_once,
                trying_in_a_transaction_leaves_it_usable,
                the_sessions_limits_are_as_before_after_a_wait,
                a_wait_that_is_too_long_is_refused,
            },
            nesting::{
                the_same_id_again_is_granted_at_once,
                a_lock_of_a_savepoint_lasts_as_long_as_the_engine_says,
                with_object_lock_in_a_transaction_is_a_savepoint,
                opposite_orders_end_in_a_deadlock_or_one_after_the_other,
            },
            endings::{
                an_error_of_the_closure_rolls_back_and_frees,
                a_panic_rolls_back_frees_and_goes_on,
                a_pooled_connection_comes_back_without_the_lock,
                closures_may_return_any_error_made_from_ours,
            },
            many::{
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
            refusals::{
                lock_object_needs_a_transaction,
                a_missing_table_names_migrate,
                a_read_only_connection_is_told_so,
                a_stale_transaction_is_refused,
                purge_and_migrate_need_to_be_outside_a_transaction,
            },
            retention::{
                kept_rows_stay_until_purged,
                purge_leaves_held_rows_alone,
                purge_works_while_others_lock,
            },
            tables::{
                eight_servers_migrate_at_once,
                the_way_down_leaves_nothing,
                our_migration_sorts_before_the_applications,
            },
            events::{
                acquired_refused_timed_out_and_freed_are_told,
            },
        );
    };
}
pub(crate) use all_promises;
