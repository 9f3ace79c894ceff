//! Runs on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use crate::run::{assert_right, completed};
use diesel::prelude::*;
use program_test_support::OwnDatabase;

fn runs_end_right<C: Connection>(variable: &str, backend: &str) {
    let database = OwnDatabase::<C>::create(variable);
    let options = [
        "--files",
        "300",
        "--lines",
        "20",
        "--list",
        "10",
        "--read-time",
        "15ms",
        "--lease",
        "400ms",
        "--database-url",
        &database.url,
    ];
    let killed = completed(&[&options[..], &["--kill-every", "300ms"]].concat());
    assert_right(&killed);
    assert_eq!(killed.outcome["backend"], backend);
    assert_eq!(killed.number("max_holders"), 10, "{killed:?}");
    assert!(killed.number("kills") > 0, "{killed:?}");

    let paused = completed(&[&options[..], &["--pause-every", "200ms"]].concat());
    assert_right(&paused);
    assert!(paused.number("pauses") > 0, "{paused:?}");
    assert!(paused.number("stale_stopped") > 0, "{paused:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn runs_on_postgres_end_right_with_kills_and_pauses() {
    runs_end_right::<PgConnection>("PG_DATABASE_URL", "postgres");
}

#[cfg(feature = "mysql")]
#[test]
fn runs_on_mysql_end_right_with_kills_and_pauses() {
    runs_end_right::<MysqlConnection>("MYSQL_DATABASE_URL", "mysql");
}
