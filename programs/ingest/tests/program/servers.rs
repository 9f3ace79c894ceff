//! Runs on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use crate::run::{assert_right, completed};
use diesel::prelude::*;
use program_test_support::OwnDatabase;

fn runs_end_right<C: Connection>(variable: &str, backend: &str) {
    let database = OwnDatabase::<C>::create(variable);
    let options = [
        "--documents",
        "2000",
        "--ids",
        "50",
        "--database-url",
        &database.url,
    ];
    for more in [["--retention", "transient"], ["--retention", "kept"]] {
        let run = completed(&[&options[..], &more[..]].concat());
        assert_right(&run);
        assert_eq!(run.outcome["backend"], backend);
        assert_eq!(run.number("stored"), 50);
    }
    let unlocked = completed(&[&options[..], &["--unlocked"]].concat());
    assert_eq!(unlocked.code, Some(0), "{unlocked:?}");
    let harm = ["missing", "stale", "duplicates", "errors"].map(|field| unlocked.number(field));
    assert!(harm.iter().sum::<u64>() > 0, "{unlocked:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn runs_on_postgres_end_right_with_the_lock_and_not_without() {
    runs_end_right::<PgConnection>("PG_DATABASE_URL", "postgres");
}

#[cfg(feature = "mysql")]
#[test]
fn runs_on_mysql_end_right_with_the_lock_and_not_without() {
    runs_end_right::<MysqlConnection>("MYSQL_DATABASE_URL", "mysql");
}
