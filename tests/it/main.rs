//! The guarantees of `docs/guarantees.md`, each as one test body that runs on every engine.
//!
//! `behaviour` has the bodies, `test_lists` names them, `support` has databases, connections and threads for
//! them. The modules `postgres`, `mysql` (MySQL or MariaDB, whichever `MYSQL_DATABASE_URL` names) and `sqlite`
//! run them on their engine, and add the tests of that engine only.

mod async_connections;
mod behaviour;
mod client_library;
mod connection_wrapper;
mod crash;
mod least_privilege;
mod method_names;
mod migrate_async;
mod mysql;
mod pgbouncer;
mod postgres;
mod schema;
mod sqlite;
mod subprocess;
mod support;
mod test_lists;

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
pub(crate) use test_lists::{
    all_tests, connection_tests, core_tests, held_locks_tests, input_tests, many_writers_tests,
    owner_tests, session_tests, silent_server_tests, statement_tests, waiter_tests,
};
