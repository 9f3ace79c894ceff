//! The migrations, the privileges and policies on the tables, and one object lock.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel::result::Error::RollbackTransaction;
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

/// A table, a column, a value that it may have, and the privileges that an application needs.
type Needed = (&'static str, &'static str, &'static str, &'static str);

/// Those of docs/privileges.md.
const POSTGRES: [Needed; 6] = [
    ("diesel_locks_objects", "id", "'a'", "SELECT INSERT DELETE"),
    (
        "diesel_locks_wanted",
        "id",
        "'a'",
        "SELECT INSERT UPDATE DELETE",
    ),
    (
        "diesel_locks_slots",
        "name",
        "'a'",
        "SELECT INSERT UPDATE DELETE",
    ),
    (
        "diesel_locks_semaphores",
        "name",
        "'a'",
        "SELECT INSERT UPDATE",
    ),
    ("diesel_locks_fences", "fence", "0", "SELECT INSERT UPDATE"),
    (
        "diesel_locks_sequences",
        "name",
        "'a'",
        "SELECT INSERT UPDATE",
    ),
];

/// REPLACE deletes rows where PostgreSQL updates them.
const MYSQL: [Needed; 6] = [
    POSTGRES[0],
    ("diesel_locks_wanted", "id", "'a'", "SELECT INSERT DELETE"),
    POSTGRES[2],
    (
        "diesel_locks_semaphores",
        "name",
        "'a'",
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
    if conn.engine() == Engine::Mysql
        && let Err(error) = conn.batch_execute(SESSION)
    {
        return vec![found(Problem, "tables", format!("can't be tried: {error}"))];
    }
    if conn.engine() == Engine::Mysql
        && let Ok(engines) = value(conn, OTHER_ENGINES)
    {
        // What follows could not be rolled back.
        let text = format!("{engines}, which has no transactions: ALTER TABLE .. ENGINE = InnoDB");
        return vec![found(Problem, "tables", text)];
    }
    let missing = missing_migrations(conn);
    if matches!(missing, Ok(0))
        && let Some(different) = different_tables(conn)
    {
        return vec![different];
    }
    let read = |conn: &mut AnyConnection| conn.semaphores(&ListOptions::new().limit(1));
    if let Err(error) = conn.within(LOCKED_TABLE, read)
        && !error.is_insufficient_privilege()
    {
        return vec![found(Problem, "tables", described(&error))];
    }
    let mut findings = vec![migrations(missing)];
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
    findings.extend(match list_objects(conn) {
        Ok(()) => Some(found(
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

/// For MySQL and MariaDB. Settings are findings of their own; `sql_safe_updates` refuses deletions without a key, and a strict
/// `sql_mode` refuses rows without all values, also where there are none.
const SESSION: &str =
    "SET completion_type = 0, autocommit = 1, sql_safe_updates = 0, sql_mode = ''";

/// Of MySQL's and MariaDB's tables; NULL if there are none.
const OTHER_ENGINES: &str = "(SELECT GROUP_CONCAT(table_name, ': ', engine ORDER BY table_name SEPARATOR ', ') \
     FROM information_schema.tables WHERE table_schema = DATABASE() \
     AND LEFT(table_name, 13) = 'diesel_locks_' AND engine <> 'InnoDB')";

/// How long another transaction may write to an SQLite file.
const WRITER: Duration = Duration::from_secs(5);

/// A lock fails where nothing can be locked: on a standby, with several writers. It is rolled back, because a replica that
/// commits, as an administrator may, can't follow its source any more. Also returns whether statements that write can be tried.
fn object_lock(conn: &mut AnyConnection) -> (bool, Finding) {
    const ID: &str = "diesel-locks:doctor";
    const ACQUIRED: &str = "one was acquired and released";
    let engine = conn.engine();
    let finding = |verdict, text: String| found(verdict, "object locks", text);
    let mut is_acquired = false;
    let roll_back = |_: &mut AnyConnection| {
        is_acquired = true;
        Err(Error::from(RollbackTransaction))
    };
    // On SQLite the lock is that of the whole file.
    let locked: Result<Option<()>, Error> = if engine == Engine::Sqlite {
        let request = LockRequest::new(ID).wait(WRITER);
        conn.with_object_lock(request, roll_back).map(Some)
    } else {
        conn.try_with_object_lock(ID, roll_back)
    };
    match locked {
        _ if is_acquired => (true, finding(Good, ACQUIRED.to_owned())),
        Ok(_) => {
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
            let remedy = value(conn, remedy_of_read_only(engine));
            let remedy = remedy.unwrap_or_else(|error| error.to_string());
            let text = format!("{}: {remedy}", described(&error));
            (false, finding(Problem, text))
        }
        // The tables are there.
        Err(Error::MissingTables { source }) => {
            let text = format!(
                "{}: restore it with the tables, or drop all that begins with diesel_locks_ and run `diesel-locks migrate`",
                described(&source)
            );
            (true, finding(Problem, text))
        }
        Err(error) => (true, finding(Problem, described(&error))),
    }
}

/// An expression.
fn remedy_of_read_only(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => {
            "CASE WHEN pg_is_in_recovery() THEN 'connect to the primary' \
             ELSE 'set default_transaction_read_only to off for this user' END"
        }
        Engine::Mysql => {
            "CASE WHEN CAST(@@read_only AS CHAR) IN ('0', 'OFF') \
             THEN 'set transaction_read_only (MariaDB: tx_read_only) to OFF' ELSE 'connect to the primary' END"
        }
        Engine::Sqlite => {
            "'make the file and its directory writable for this user, and open it without mode=ro'"
        }
    }
}

fn list_objects(conn: &mut AnyConnection) -> Result<(), Error> {
    conn.held_object_locks(1)?;
    if conn.engine() == Engine::Postgres {
        // For the ids of kept locks, as soon as there are some.
        let read = "SELECT id FROM diesel_locks_objects WHERE false";
        conn.within(LOCKED_TABLE, |conn| conn.batch_execute(read))?;
    }
    Ok(())
}

/// How many are not recorded.
fn missing_migrations(conn: &mut AnyConnection) -> Result<usize, Error> {
    // Those of the engines have the same versions.
    let ours = MigrationSource::<Sqlite>::migrations(&migrations::SQLITE).unwrap_or_default();
    let ours: BTreeSet<_> = ours
        .iter()
        .map(|it| it.name().version().to_string())
        .collect();
    let recorded = __diesel_schema_migrations::table.select(__diesel_schema_migrations::version);
    let recorded: Vec<String> = conn.within(LOCKED_TABLE, |conn| recorded.load(conn))?;
    Ok(ours.iter().filter(|it| !recorded.contains(it)).count())
}

fn migrations(missing: Result<usize, Error>) -> Finding {
    const SUBJECT: &str = "migrations";
    match missing {
        Ok(0) => found(Good, SUBJECT, "all of this version have run"),
        Ok(missing) => {
            let have = if missing == 1 { "has" } else { "have" };
            let missing = counted(missing, "migration");
            let text = format!("{missing} {have} not run: run `diesel-locks migrate`");
            found(Problem, SUBJECT, text)
        }
        Err(error) => {
            let text = format!("can't be read: {}", described(&error));
            found(Warning, SUBJECT, text)
        }
    }
}

/// Whether the tables lack something though all migrations have run: then `migrate` compares, and does nothing else.
fn different_tables(conn: &mut AnyConnection) -> Option<Finding> {
    let error = diesel_locks::migrate(conn).err()?;
    let hidden = match (&error, conn.engine()) {
        (Error::DifferentTables { .. }, Engine::Postgres) => {
            " (if it exists: add its schema to the search_path, and grant the user USAGE on it)"
        }
        (Error::DifferentTables { .. }, Engine::Mysql) => {
            " (if it exists: docs/privileges.md has the GRANTs on its table)"
        }
        _ => "",
    };
    let text = format!("{}{hidden}", described(&error));
    Some(found(Problem, "tables", text))
}

/// Tries statements that change nothing, and need the privilege all the same. MySQL and MariaDB would write them to the binary log.
fn privileges(conn: &mut AnyConnection) -> Finding {
    const SUBJECT: &str = "privileges";
    let is_mysql = conn.engine() == Engine::Mysql;
    if is_mysql && let Err(error) = conn.batch_execute("START TRANSACTION") {
        return found(Warning, SUBJECT, format!("can't be tried: {error}"));
    }
    let (mut missing, mut locked) = (Vec::new(), None);
    'tables: for &(table, column, value, privileges) in needed(conn.engine()) {
        for privilege in privileges.split(' ') {
            let statement = match privilege {
                "SELECT" => format!("SELECT * FROM {table}"),
                "INSERT" => {
                    format!("INSERT INTO {table} ({column}) SELECT {value} FROM (SELECT 1) AS one")
                }
                "UPDATE" => format!("UPDATE {table} SET {column} = {value}"),
                _ => format!("DELETE FROM {table}"),
            };
            let statement = format!("{statement} WHERE 1 = 0");
            let tried = conn.within(LOCKED_TABLE, |conn| conn.batch_execute(&statement));
            let Err(error) = tried else {
                continue;
            };
            let lacks = format!("{privilege} on {table} ({error})");
            let error = Error::from(error);
            if error.is_timeout() {
                locked = Some(described(&error));
                break 'tables;
            }
            // A server that is read-only refuses it to those who have the privilege.
            if !error.is_read_only() {
                missing.push(lacks);
            }
        }
    }
    if is_mysql && let Err(error) = conn.batch_execute("ROLLBACK") {
        return found(Warning, SUBJECT, format!("can't be tried: {error}"));
    }
    if missing.is_empty()
        && let Some(locked) = locked
    {
        return found(Problem, SUBJECT, format!("can't be tried: {locked}"));
    }
    if missing.is_empty() {
        return found(Good, SUBJECT, "those of an application on the tables");
    }
    let text = format!(
        "an application's user would lack {}; docs/privileges.md has the GRANTs",
        missing.join(", ")
    );
    found(Problem, SUBJECT, text)
}

/// PostgreSQL hides rows without an error where no policy permits a command that the user may execute.
fn policies(conn: &mut AnyConnection) -> Finding {
    const SUBJECT: &str = "row-level security";
    let commands = POSTGRES.iter().flat_map(|&(table, _, _, privileges)| {
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
