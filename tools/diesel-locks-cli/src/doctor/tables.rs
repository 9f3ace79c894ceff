//! The migrations, the privileges on the tables, and one object lock.

use std::collections::BTreeSet;

use diesel::connection::SimpleConnection;
use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel::sqlite::Sqlite;
use diesel_locks::{Error, InspectExt, ListOptions, ObjectLockExt, migrations};

use super::{Finding, Good, Problem, Warning, found};
use crate::database::{AnyConnection, Engine};
use crate::failure::described;

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
    // A lock leaves nothing behind, and fails where nothing can be locked: on a standby, with several writers.
    let locked = conn.try_with_object_lock("diesel-locks:doctor", |_| Ok::<_, Error>(()));
    if !matches!(locked, Err(Error::ReadOnly { .. })) {
        findings.push(privileges(conn));
    }
    findings.push(match locked {
        Ok(Some(())) => found(Good, "object locks", "one was acquired and released"),
        Ok(None) => found(Good, "object locks", "another session holds one at present"),
        Err(error) => found(Problem, "object locks", described(&error)),
    });
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
            found(
                Problem,
                "migrations",
                format!("{missing} have not run: run `diesel-locks migrate`"),
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
