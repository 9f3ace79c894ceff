//! Runs on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use crate::run::Run;
use diesel::prelude::*;
use program_test_support::OwnDatabase;

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
        let refused =
            |strategy| run.number("PostgreSQL ", isolation, strategy, "serialization_failures");
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
    // Newer versions of MariaDB refuse to change a row that changed since the snapshot. Older ones and MySQL lose
    // updates.
    assert_ne!(verdicts("REPEATABLE READ")[0], "right");
    assert_eq!(verdicts("SERIALIZABLE")[0], "refused");
    assert!(
        run.number("M", "SERIALIZABLE", "plain", "deadlocks") >= 2,
        "{run:?}"
    );
}
