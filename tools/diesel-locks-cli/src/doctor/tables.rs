//! The migrations, the privileges on the tables, and one object lock.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel::sqlite::Sqlite;
use diesel_locks::{Error, InspectExt, ListOptions, LockRequest, ObjectLockExt, migrations};

use super::{Finding, Good, Problem, Warning, found};
use crate::database::{AnyConnection, Engine};
use crate::failure::described;
use crate::output::{counted, duration};

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> Text,
    }
}

/// Statements that change nothing, and need the privilege all the same.
const STATEMENTS: [(&str, &str); 6] = [
    ("diesel_locks_objects", "INSERT DELETE"),
    ("diesel_locks_wanted", "INSERT DELETE"),
    ("diesel_locks_slots", "INSERT UPDATE DELETE"),
    ("diesel_locks_semaphores", "INSERT"),
    ("diesel_locks_fences", "INSERT UPDATE"),
    ("diesel_locks_sequences", "INSERT UPDATE"),
];

pub(super) fn findings(conn: &mut AnyConnection) -> Vec<Finding> {
    if let Err(error) = conn.semaphores(&ListOptions::new().limit(1))
        && !error.is_insufficient_privilege()
    {
        return vec![found(Problem, "tables", described(&error))];
    }
    let mut findings = vec![migrations(conn)];
    if findings[0].verdict == Problem {
        // The rest would be what is missing, called by other names.
        return findings;
    }
    let (can_write, object_locks) = object_lock(conn);
    if can_write {
        findings.push(privileges(conn));
    }
    findings.push(object_locks);
    findings.extend(match conn.held_object_locks(1) {
        Ok(_) => Some(found(
            Good,
            "list objects",
            "this user may list object locks",
        )),
        Err(Error::LocksNotShown { .. }) => None,
        Err(error) => Some(found(Warning, "list objects", described(&error))),
    });
    findings
}

/// How long another transaction may write to an SQLite file.
const WRITER: Duration = Duration::from_secs(5);

/// A lock leaves nothing behind, and fails where nothing can be locked: on a standby, with several writers. Also returns
/// whether statements that write can be tried.
fn object_lock(conn: &mut AnyConnection) -> (bool, Finding) {
    const ID: &str = "diesel-locks:doctor";
    const ACQUIRED: &str = "one was acquired and released";
    let engine = conn.engine();
    let finding = |verdict, text: String| found(verdict, "object locks", text);
    // On SQLite the lock is that of the whole file.
    let locked = if engine == Engine::Sqlite {
        let request = LockRequest::new(ID).wait(WRITER);
        conn.with_object_lock(request, |_| Ok::<_, Error>(()))
            .map(Some)
    } else {
        conn.try_with_object_lock(ID, |_| Ok::<_, Error>(()))
    };
    match locked {
        Ok(Some(())) => (true, finding(Good, ACQUIRED.to_owned())),
        Ok(None) => {
            let text = "another session holds one at present".to_owned();
            (true, finding(Good, text))
        }
        Err(error) if engine == Engine::Sqlite && error.is_busy() => {
            let text = format!(
                "another connection has written for {}, and keeps all others from it: end its transaction",
                duration(WRITER)
            );
            (false, finding(Problem, text))
        }
        Err(error @ Error::ReadOnly { .. }) => {
            let text = match engine {
                Engine::Postgres => {
                    "connect to the primary, or set default_transaction_read_only to off for this user"
                }
                Engine::Mysql => {
                    "connect to the primary, or set transaction_read_only (MariaDB: tx_read_only) to OFF"
                }
                Engine::Sqlite => {
                    "make the file and its directory writable for this user, and open it without mode=ro"
                }
            };
            (
                false,
                finding(Problem, format!("{}: {text}", described(&error))),
            )
        }
        Err(error) => (true, finding(Problem, described(&error))),
    }
}

fn migrations(conn: &mut AnyConnection) -> Finding {
    // Those of the engines have the same versions.
    let ours = MigrationSource::<Sqlite>::migrations(&migrations::SQLITE).unwrap_or_default();
    let ours: BTreeSet<_> = ours
        .iter()
        .map(|it| it.name().version().to_string())
        .collect();
    let recorded = __diesel_schema_migrations::table.select(__diesel_schema_migrations::version);
    match recorded.load::<String>(conn) {
        Ok(recorded) => {
            let missing = ours.iter().filter(|it| !recorded.contains(it)).count();
            if missing == 0 {
                return found(Good, "migrations", "all of this version have run");
            }
            let have = if missing == 1 { "has" } else { "have" };
            let missing = counted(missing, "migration");
            found(
                Problem,
                "migrations",
                format!("{missing} {have} not run: run `diesel-locks migrate`"),
            )
        }
        Err(error) => found(
            Warning,
            "migrations",
            format!("can't be read: {}", described(&error)),
        ),
    }
}

fn privileges(conn: &mut AnyConnection) -> Finding {
    let mut missing = Vec::new();
    for (table, privileges) in STATEMENTS {
        // SQLite has no such table.
        if table == "diesel_locks_wanted" && conn.engine() == Engine::Sqlite {
            continue;
        }
        for privilege in privileges.split(' ') {
            let column = if table == "diesel_locks_fences" {
                "fence"
            } else {
                "name"
            };
            let statement = match privilege {
                "INSERT" => format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
                "UPDATE" => format!("UPDATE {table} SET {column} = {column} WHERE 1 = 0"),
                _ => format!("DELETE FROM {table} WHERE 1 = 0"),
            };
            if let Err(error) = conn.batch_execute(&statement) {
                missing.push(format!("{privilege} on {table} ({error})"));
            }
        }
    }
    if missing.is_empty() {
        return found(Good, "privileges", "those of an application on the tables");
    }
    let text = format!(
        "an application's user would lack {}; docs/privileges.md has the GRANTs",
        missing.join(", ")
    );
    found(Problem, "privileges", text)
}
