//! Runs on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use crate::run::assert_as_expected;
use diesel::prelude::*;
use program_test_support::OwnDatabase;

fn lessons_come_out_as_expected<C: Connection>(variable: &str, words: &[&str]) {
    let database = OwnDatabase::<C>::create(variable);
    let arguments = ["--database-url", &database.url];
    assert_as_expected(&arguments, words);
    // Again, with existing tables.
    assert_as_expected(&arguments, words);
}

#[cfg(feature = "postgres")]
#[test]
fn lessons_on_postgres_come_out_as_expected() {
    let words = ["FOR SHARE", "DEADLOCK", "SERIALIZATION FAILURE", "Lesson 4"];
    lessons_come_out_as_expected::<PgConnection>("PG_DATABASE_URL", &words);
}

#[cfg(feature = "mysql")]
#[test]
fn lessons_on_mysql_come_out_as_expected() {
    let words = [
        "LOCK IN SHARE MODE",
        "DEADLOCK",
        "at SERIALIZABLE",
        "Lesson 3",
    ];
    lessons_come_out_as_expected::<MysqlConnection>("MYSQL_DATABASE_URL", &words);
}
