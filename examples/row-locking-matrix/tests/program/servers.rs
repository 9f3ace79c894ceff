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
        let name = format!("row_locking_test_{}", std::process::id());
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

fn small<C: Connection>(variable: &str) -> Run {
    let database = OwnDatabase::<C>::create(variable);
    let options = ["--connections", "3", "--numbers", "10"];
    Run::of(&[&options[..], &["--database-url", &database.url]].concat())
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_loses_updates_at_read_committed_and_refuses_them_above() {
    let run = small::<PgConnection>("PG_DATABASE_URL");
    let verdicts = |isolation| run.verdicts("PostgreSQL ", isolation);
    assert_eq!(
        verdicts("READ COMMITTED"),
        ["failed", "failed", "right", "right", "right", "right"]
    );
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let verdicts = verdicts(isolation);
        assert_eq!(verdicts[..2], ["refused", "refused"]);
        assert!(!verdicts.contains(&"failed"), "{verdicts:?}");
        let refused = |way| run.number("PostgreSQL ", isolation, way, "serialization_failures");
        assert!(refused("plain") >= 2 && refused("cursor") >= 2, "{run:?}");
    }
}

#[cfg(feature = "mysql")]
#[test]
fn innodb_loses_updates_at_read_committed_and_deadlocks_at_serializable() {
    let run = small::<MysqlConnection>("MYSQL_DATABASE_URL");
    // MySQL or MariaDB.
    let verdicts = |isolation| run.verdicts("M", isolation);
    assert_eq!(
        verdicts("READ COMMITTED"),
        ["failed", "skipped", "right", "skipped", "right", "right"]
    );
    // Newer versions of MariaDB refuse what changed since the snapshot, older ones and MySQL lose it.
    assert_ne!(verdicts("REPEATABLE READ")[0], "right");
    assert_eq!(verdicts("SERIALIZABLE")[0], "refused");
    assert!(
        run.number("M", "SERIALIZABLE", "plain", "deadlocks") >= 2,
        "{run:?}"
    );
}
