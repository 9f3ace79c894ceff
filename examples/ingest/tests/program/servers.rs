//! Whole runs on servers: on those that `PG_DATABASE_URL` and `MYSQL_DATABASE_URL` name, each in a
//! database of its own.

use std::env;

use crate::run::Run;
use diesel::prelude::*;

/// A database that is dropped again.
struct OwnDatabase<C: Connection> {
    server: C,
    name: String,
    url: String,
}

impl<C: Connection> OwnDatabase<C> {
    /// The variable holds the URL of any database on the server.
    fn create(variable: &str) -> Self {
        let given = env::var(variable).unwrap_or_else(|_| {
            panic!(
                "{variable} is not set: run the tests with `cargo xtask test`, which starts the servers, \
                 or set it to the URL of a server on which databases may be created"
            )
        });
        let name = format!("ingest_test_{}", std::process::id());
        let (address, path) = given.rsplit_once('/').expect("a URL with a database");
        let options = path
            .split_once('?')
            .map_or(String::new(), |(_, options)| format!("?{options}"));
        let url = format!("{address}/{name}{options}");
        let mut server = C::establish(&given).expect("the server answers");
        server
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .expect("a database");
        Self { server, name, url }
    }
}

impl<C: Connection> Drop for OwnDatabase<C> {
    fn drop(&mut self) {
        let dropped = self
            .server
            .batch_execute(&format!("DROP DATABASE {}", self.name));
        if !std::thread::panicking() {
            dropped.expect("the database can be dropped");
        }
    }
}

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
        let run = Run::of(&[&options[..], &more[..]].concat());
        run.assert_right();
        assert_eq!(run.outcome["backend"], backend);
        assert_eq!(run.number("stored"), 50);
    }
    let unlocked = Run::of(&[&options[..], &["--unlocked"]].concat());
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
