//! Futures that are dropped: after every poll, on connections and in pools, on every engine.
//!
//! Each body drops a method's future after 0, 1, 2 .. polls, until it is ready or waits. After each drop, what the method
//! held is free, no statement of it is left on the server, its rows are there as a whole or not at all, and the next user of
//! the pool has a clean connection. The conditions are waited for in the database; `--nocapture` prints the times.

mod acquisitions;
mod endings;
mod locks;
mod migrations;
mod nesting;
mod processes;
mod requests;
mod runtimes;
mod sequences;
mod slots;
mod stalled;
#[allow(dead_code, reason = "tests/asynchronous uses the rest")]
mod support;

/// One test for each body, on a runtime with several threads or with one.
macro_rules! tests {
    ($engine:ty, $runtime:ident: $($module:ident::{$($name:ident),* $(,)?}),* $(,)?) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                let runtime = crate::support::runtime::$runtime();
                runtime.block_on(crate::$module::$name::<$engine>());
            })*
        })*
    };
}

macro_rules! all_tests {
    ($engine:ty) => {
        crate::tests! {
            $engine, with_threads:
            acquisitions::{clean_up_is_cancelled, drop_does_not_wait, instrumentation_panics},
            endings::{error, panic, retries},
            locks::{
                budget_used_up, free, held_by_another, in_closure, in_statement, kept_and_held_by_another,
                other_methods, purge, reads,
            },
            migrations::{another_migrates, nobody_migrates, of_the_application},
            nesting::{dropped_at_its_end, free, held_by_another},
            processes::{killed},
            runtimes::{shut_down, shut_down_while_held},
            sequences::{drawn_by_another, free},
            slots::{
                administration, held, leased_by_another, leases, locked_by_another, purge_beside_locked, releases,
                resized_by_another, transactions,
            },
        }

        mod one_thread {
            crate::tests! {
                $engine, with_one_thread:
                acquisitions::{drop_does_not_wait, instrumentation_panics},
                endings::{panic},
                locks::{free, held_by_another, in_closure, in_statement},
                migrations::{another_migrates},
                nesting::{free, held_by_another},
                slots::{leased_by_another, leases},
            }
        }
    };
}
/// What SQLite has not: a server that may not answer.
macro_rules! server_tests {
    ($engine:ty) => {
        crate::tests! { $engine, with_threads: stalled::{request_with_a_limit_ends} }
    };
}
pub(crate) use {all_tests, server_tests, tests};

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
