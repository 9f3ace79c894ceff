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
    /// On the server of the URL in the variable, which names any database there.
    fn create(variable: &str) -> Self {
        let given = env::var(variable).unwrap_or_else(|_| {
            panic!(
                "{variable} is not set: run the tests with `cargo xtask test`, which starts the servers, \
                 or set it to the URL of a server on which databases may be created"
            )
        });
        let name = format!("collate_test_{}", std::process::id());
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
    let killed = Run::of(&[&options[..], &["--kill-every", "300ms"]].concat());
    killed.assert_right();
    assert_eq!(killed.outcome["backend"], backend);
    assert_eq!(killed.number("max_holders"), 10, "{killed:?}");
    assert!(killed.number("kills") > 0, "{killed:?}");

    let paused = Run::of(&[&options[..], &["--pause-every", "200ms"]].concat());
    paused.assert_right();
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
