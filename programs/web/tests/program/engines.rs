//! Each scenario on each engine.

/// Tests of these scenarios on a server.
macro_rules! tests_on_server {
    ($connection:ty, $variable:literal: $($scenario:ident),* $(,)?) => {
        $(
            #[test]
            fn $scenario() {
                type Own = program_support::testing::OwnDatabase<$connection>;
                crate::scenarios::$scenario::<$connection>(&Own::create($variable).url);
            }
        )*
    };
}

/// Tests of these scenarios. Those after `servers` need a server.
macro_rules! tests {
    (everywhere: [$($everywhere:ident),* $(,)?], servers: [$($servers:ident),* $(,)?] $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $everywhere() {
                    let directory = tempfile::tempdir().expect("a directory");
                    let path = directory.path().join("web.sqlite");
                    let url = path.to_str().expect("UTF-8");
                    crate::scenarios::$everywhere::<diesel::SqliteConnection>(url);
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            tests_on_server!(
                diesel::PgConnection, "PG_DATABASE_URL":
                $($everywhere,)* $($servers,)* the_page_says_that_a_table_is_locked,
            );
        }

        #[cfg(feature = "mysql")]
        mod mysql {
            tests_on_server!(
                diesel::MysqlConnection, "MYSQL_DATABASE_URL": $($everywhere,)* $($servers),*
            );
        }
    };
}

tests! {
    everywhere: [
        health_answers_while_100_of_200_clients_wait,
        clients_that_hang_up_leave_nothing_behind,
        a_burst_of_passes_has_no_gaps,
        transfers_keep_the_sum,
        jobs_never_exceed_the_permits,
        sigterm_releases_slots_and_ends_waits,
        errors_are_problems,
        the_wait_for_a_lock_ends,
        documents_keep_the_newest_version,
        metrics_and_events_tell_what_happens,
        an_operator_releases_slots,
        an_operator_releases_nobody_unseen,
        pages_of_other_sites_change_nothing,
        unknown_hosts_are_refused,
        releases_do_not_depend_on_waiting_requests,
        instances_share_their_permits,
        instances_are_told_apart_by_their_names,
    ],
    servers: [
        the_service_recovers_with_its_database,
        a_silent_network_is_left_behind,
    ],
}
