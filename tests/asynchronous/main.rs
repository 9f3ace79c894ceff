//! What waits without a connection, over pools of asynchronous connections: on every engine and both pools.

mod checks;
mod lock_pool;
mod lock_pool_dropped;
mod locked;
mod renewers;
mod service;
mod shutdown;
#[allow(dead_code, reason = "tests/cancel uses the rest")]
#[path = "../cancel/support/mod.rs"]
mod support;
mod testing;

use renewers::{
    dropped as renewers_dropped, guards as renewers_guards, loops as renewers_loops,
    waits as renewers_waits,
};

/// One test for each body, engine and pool, on a runtime with several threads or with one.
macro_rules! tests {
    ($engine:ty, $runtime:ident: $($module:ident::{$($name:ident),* $(,)?}),* $(,)?) => {
        $(mod $module {
            mod bb8 {
                $(#[test]
                fn $name() {
                    let runtime = crate::support::runtime::$runtime();
                    let body = crate::$module::$name::<$engine, crate::support::pools::Bb8>();
                    runtime.block_on(body);
                })*
            }

            mod deadpool {
                $(#[test]
                fn $name() {
                    let runtime = crate::support::runtime::$runtime();
                    let body = crate::$module::$name::<$engine, crate::support::pools::Deadpool>();
                    runtime.block_on(body);
                })*
            }
        })*
    };
}

/// One test for each body that makes its own runtimes.
macro_rules! tests_of_runtimes {
    ($engine:ty: $($name:ident),* $(,)?) => {
        crate::tests_of_runtimes!(@ bb8, Bb8, $engine: $($name),*);
        crate::tests_of_runtimes!(@ deadpool, Deadpool, $engine: $($name),*);
    };
    (@ $module:ident, $kind:ident, $engine:ty: $($name:ident),*) => {
        mod $module {
            $(#[test]
            fn $name() {
                crate::renewers::runtimes::$name::<$engine, crate::support::pools::$kind>();
            })*
        }
    };
}

macro_rules! all_tests {
    ($engine:ty) => {
        crate::tests! {
            $engine, with_threads:
            lock_pool::{
                error_and_panic_roll_back_and_release,
                free_is_acquired_with_any_limit,
                many_waiters_send_few_statements,
                requests_are_listed,
                requests_for_free_locks_leave_a_connection_to_others,
                requests_run_one_after_the_other,
                statement_that_was_dropped_has_no_effect_on_the_next_request,
                stopped_waiter_does_not_run,
                time_limit_begins_at_the_first_poll,
                time_limit_ends_a_wait,
                wait_for_a_connection_of_the_pool_ends,
                waiters_leave_connections_to_others,
            },
            lock_pool_dropped::{at_each_poll, while_another_holds_it, in_the_queue},
            renewers_guards::{
                callback_of_a_lost_guard_delays_no_renewal,
                guard_is_lost_when_its_slot_is_released_by_force,
                guard_is_renewed_until_it_is_dropped,
                holder_is_asked_to_release,
                leases_depend_on_progress,
                many_guards_are_renewed_by_one_statement,
                release_guards_releases_locked_slots_later,
                release_guards_releases_those_of_one_renewer,
                try_run_releases_the_slot_after_success_error_and_panic,
            },
            renewers_waits::{
                dropped_waiter_does_not_keep_others_waiting,
                guard_lives_while_many_tasks_wait,
                waits_end_by_limit_stop_and_release,
            },
            renewers_dropped::{
                acquisitions, all_guards, leaders, releases, runs, several_permits, ticks,
            },
            renewers_loops::{
                each_tick_is_run_by_one_node,
                leader_that_fails_or_panics_releases_its_slot,
                lost_leader_ends_and_stands_again,
                standby_is_elected_when_the_leader_ends,
            },
            testing::{
                another_holder_is_released_or_dropped,
                attempts_fail_as_chosen,
                guard_of_a_moved_lease_is_lost,
            },
            service::{
                clients_that_hang_up_lose_and_leave_nothing,
                request_that_waits_is_answered_when_the_service_ends,
            },
            shutdown::{
                dropped_shutdown_may_be_called_again,
                shutdown_cuts_off_what_does_not_end,
                shutdown_does_not_keep_renewers,
                shutdown_ends_while_slots_are_locked,
                shutdown_waits_for_transactions_of_each_kind,
                shutdown_waits_until_all_has_ended,
                shutdown_waits_until_dropped_acquisitions_are_released,
                shutdown_waits_until_dropped_transactions_have_ended,
            },
        }

        mod runtimes {
            crate::tests_of_runtimes! {
                $engine:
                guard_is_lost_while_its_runtime_does_not_run,
                guard_is_released_although_its_runtime_ends,
                guard_outlives_its_runtime,
            }
        }

        mod one_thread {
            crate::tests! {
                $engine, with_one_thread:
                lock_pool::{
                    error_and_panic_roll_back_and_release,
                    requests_run_one_after_the_other,
                    stopped_waiter_does_not_run,
                },
                lock_pool_dropped::{at_each_poll, while_another_holds_it, in_the_queue},
                renewers_guards::{
                    guard_is_renewed_until_it_is_dropped,
                    try_run_releases_the_slot_after_success_error_and_panic,
                },
                renewers_waits::{
                    dropped_waiter_does_not_keep_others_waiting,
                    waits_end_by_limit_stop_and_release,
                },
                renewers_dropped::{acquisitions, releases, runs, ticks},
                renewers_loops::{standby_is_elected_when_the_leader_ends},
                shutdown::{shutdown_waits_until_all_has_ended},
            }
        }
    };
}
/// What SQLite has not: connections that may not answer, and rows that are locked one by one.
macro_rules! server_tests {
    ($engine:ty) => {
        mod server {
            crate::tests! {
                $engine, with_threads:
                lock_pool::{
                    free_is_acquired_beside_futures_that_are_not_polled,
                    request_ends_although_its_connection_does_not_answer,
                    transaction_is_run_again_after_its_connection_was_lost,
                },
                renewers_guards::{
                    guard_outlives_a_connection_that_does_not_answer,
                    guard_added_during_a_silent_statement_is_renewed,
                },
                renewers_dropped::{unused_slot_that_is_locked},
                shutdown::{
                    shutdown_ends_although_its_connection_does_not_answer,
                    shutdown_waits_for_what_an_unanswered_acquisition_has_left,
                },
            }
        }
    };
}
pub(crate) use {all_tests, server_tests, tests, tests_of_runtimes};

mod postgres {
    crate::all_tests!(crate::support::postgres::Postgres);
    crate::server_tests!(crate::support::postgres::Postgres);
}

mod mysql {
    crate::all_tests!(crate::support::mysql::Mysql);
    crate::server_tests!(crate::support::mysql::Mysql);
}

mod sqlite {
    crate::all_tests!(crate::support::sqlite::Sqlite);
}
