//! Runs on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use crate::run::{assert_right, completed};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use program_test_support::OwnDatabase;

fn runs_end_right<C: Connection>(variable: &str, backend: &str) {
    let database = OwnDatabase::<C>::create(variable);
    let small = [
        "--database-url",
        &database.url,
        "--meetings",
        "5",
        "--passes",
        "60",
    ];
    let run = completed(&[&small[..], &["--failures", "30"]].concat());
    assert_right(&run);
    assert_eq!(run.outcome["backend"], backend);
    assert_eq!(run.number("passes"), 300, "{run:?}");
    for field in ["failed", "panicked", "disconnected"] {
        assert!(run.number(field) > 0, "{field}: {run:?}");
    }

    for (careless, harm) in [("max", "repeats"), ("own-transaction", "gaps")] {
        let run = completed(&[&small[..], &["--failures", "30", "--careless", careless]].concat());
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.number(harm) > 0, "{harm}: {run:?}");
        assert_eq!(run.number("errors"), 0, "{run:?}");
    }
}

/// Every transaction draws from two sequences, half of them in the opposite order.
fn deadlocks_are_tried_again<C: Connection>(database: &OwnDatabase<C>) {
    let run = completed(&[
        "--database-url",
        &database.url,
        "--meetings",
        "2",
        "--passes",
        "30",
        "--pairs",
        "100",
        "--workers",
        "4",
    ]);
    assert_right(&run);
    assert_eq!(run.number("passes"), 60, "{run:?}");
    assert!(run.number("retries") > 0, "{run:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn passes_on_postgres_are_gap_free_with_sequences_and_not_without() {
    runs_end_right::<PgConnection>("PG_DATABASE_URL", "postgres");
}

#[cfg(feature = "postgres")]
#[test]
fn deadlocks_on_postgres_are_tried_again() {
    let mut database = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    // Detect each deadlock in less than a second, if the user may set that.
    let set = format!(
        "ALTER DATABASE {} SET deadlock_timeout = '20ms'",
        database.name
    );
    let _ = database.server.batch_execute(&set);
    deadlocks_are_tried_again(&database);
}

#[cfg(feature = "mysql")]
#[test]
fn passes_on_mysql_are_gap_free_with_sequences_and_not_without() {
    runs_end_right::<MysqlConnection>("MYSQL_DATABASE_URL", "mysql");
}

#[cfg(feature = "mysql")]
#[test]
fn deadlocks_on_mysql_are_tried_again() {
    deadlocks_are_tried_again(&OwnDatabase::<MysqlConnection>::create(
        "MYSQL_DATABASE_URL",
    ));
}
