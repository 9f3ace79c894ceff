//! The migrations, the privileges and policies on the tables, and one object lock.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel::sqlite::Sqlite;
use diesel_locks::{Error, InspectExt, ListOptions, LockRequest, ObjectLockExt, migrations};

use super::{Finding, Good, Problem, Warning, found, value};
use crate::database::{AnyConnection, Engine, LOCKED_TABLE};
use crate::failure::described;
use crate::output::{counted, duration};

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> Text,
    }
}

/// A table, a column with a value that it may have, and the privileges that an application needs.
type Needed = (&'static str, &'static str, &'static str);

/// Those of docs/privileges.md.
const POSTGRES: [Needed; 6] = [
    ("diesel_locks_objects", "id = 'a'", "SELECT INSERT DELETE"),
    (
        "diesel_locks_wanted",
        "id = 'a'",
        "SELECT INSERT UPDATE DELETE",
    ),
    (
        "diesel_locks_slots",
        "name = 'a'",
        "SELECT INSERT UPDATE DELETE",
    ),
    (
        "diesel_locks_semaphores",
        "name = 'a'",
        "SELECT INSERT UPDATE",
    ),
    ("diesel_locks_fences", "fence = 0", "SELECT INSERT UPDATE"),
    (
        "diesel_locks_sequences",
        "name = 'a'",
        "SELECT INSERT UPDATE",
    ),
];

/// REPLACE deletes rows where PostgreSQL updates them.
const MYSQL: [Needed; 6] = [
    POSTGRES[0],
    ("diesel_locks_wanted", "id = 'a'", "SELECT INSERT DELETE"),
    POSTGRES[2],
    (
        "diesel_locks_semaphores",
        "name = 'a'",
        "SELECT INSERT DELETE",
    ),
    POSTGRES[4],
    POSTGRES[5],
];

/// Without `diesel_locks_wanted`, and without users: what is written.
const SQLITE: [Needed; 5] = [
    POSTGRES[0],
    POSTGRES[2],
    POSTGRES[3],
    POSTGRES[4],
    POSTGRES[5],
];

fn needed(engine: Engine) -> &'static [Needed] {
    match engine {
        Engine::Postgres => &POSTGRES,
        Engine::Mysql => &MYSQL,
        Engine::Sqlite => &SQLITE,
    }
}

pub(super) fn findings(conn: &mut AnyConnection) -> Vec<Finding> {
    let read = |conn: &mut AnyConnection| conn.semaphores(&ListOptions::new().limit(1));
    if let Err(error) = conn.within(LOCKED_TABLE, read)
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
    if conn.engine() == Engine::Postgres {
        findings.push(policies(conn));
    }
    findings.push(object_locks);
    findings.extend(match conn.held_object_locks(1) {
        Ok(_) => Some(found(
            Good,
            "list objects",
            "this user may list object locks",
        )),
        // Those of SQLite never are.
        Err(Error::LocksNotShown { .. }) if conn.engine() == Engine::Sqlite => None,
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
    match conn.within(LOCKED_TABLE, |conn| recorded.load::<String>(conn)) {
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

/// Tries statements that change nothing, and need the privilege all the same.
fn privileges(conn: &mut AnyConnection) -> Finding {
    if conn.engine() == Engine::Mysql
        // It refuses deletions without a key; those of this crate have one.
        && let Err(error) = conn.batch_execute("SET sql_safe_updates = 0")
    {
        return found(Warning, "privileges", format!("can't be tried: {error}"));
    }
    let mut missing = Vec::new();
    for &(table, column, privileges) in needed(conn.engine()) {
        let mut is_readable = true;
        for privilege in privileges.split(' ') {
            let statement = match privilege {
                "SELECT" => format!("SELECT * FROM {table} WHERE 1 = 0"),
                // It would fail for the same reason.
                "INSERT" if !is_readable => continue,
                "INSERT" => format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
                "UPDATE" => format!("UPDATE {table} SET {column} WHERE 1 = 0"),
                _ => format!("DELETE FROM {table} WHERE 1 = 0"),
            };
            let tried = conn.within(LOCKED_TABLE, |conn| conn.batch_execute(&statement));
            if let Err(error) = tried {
                is_readable &= privilege != "SELECT";
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

/// PostgreSQL hides rows without an error where no policy permits a command that the user may execute.
fn policies(conn: &mut AnyConnection) -> Finding {
    const SUBJECT: &str = "row-level security";
    let commands = POSTGRES.iter().flat_map(|&(table, _, privileges)| {
        let privileges = privileges.split(' ');
        // pg_policy has the letters of an access control list, of which INSERT is `a` (append) and UPDATE `w` (write).
        privileges.map(move |privilege| match privilege {
            "SELECT" => format!("('{table}', 1, 'SELECT', 'r')"),
            "INSERT" => format!("('{table}', 2, 'INSERT', 'a')"),
            "UPDATE" => format!("('{table}', 3, 'UPDATE', 'w')"),
            _ => format!("('{table}', 4, 'DELETE', 'd')"),
        })
    });
    let hidden = format!(
        "COALESCE((SELECT string_agg(command || ' on ' || name, ', ' ORDER BY name, number) \
         FROM (VALUES {}) AS it (name, number, command, letter) JOIN pg_class ON relname = name \
         WHERE relkind = 'r' AND pg_table_is_visible(oid) AND row_security_active(oid) \
         AND NOT EXISTS (SELECT FROM pg_policy, unnest(polroles) AS of_role \
         WHERE polrelid = pg_class.oid AND polpermissive AND polcmd IN ('*', CAST(letter AS \"char\")) \
         AND (of_role = 0 OR pg_has_role(of_role, 'USAGE')))), '')",
        commands.collect::<Vec<_>>().join(", ")
    );
    match value(conn, &hidden).as_deref() {
        Ok("") => found(Good, SUBJECT, "has policies, or is off"),
        Ok(hidden) => {
            let text =
                format!("no policy permits this user {hidden}: docs/privileges.md has one for all");
            found(Problem, SUBJECT, text)
        }
        Err(error) => found(Warning, SUBJECT, format!("can't be read: {error}")),
    }
}
