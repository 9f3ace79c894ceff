//! The version of the database, and the settings that matter to locks and leases.

use diesel::dsl::sql;
use diesel::sql_types::{Bool, Text};
use diesel::{QueryResult, RunQueryDsl};

use super::{Finding, Good, Problem, Verdict, Warning, found, value};
use crate::database::{AnyConnection, Engine};
use crate::failure::Failure;

pub(super) fn version(conn: &mut AnyConnection) -> Result<Finding, Failure> {
    let (name, expression) = match conn.engine() {
        Engine::Postgres => ("PostgreSQL ", "current_setting('server_version')"),
        Engine::Mysql => ("", "CONCAT(VERSION(), ' ', @@version_comment)"),
        Engine::Sqlite => ("SQLite of this program: ", "sqlite_version()"),
    };
    let version = value(conn, expression).map_err(|error| Failure::Locks(error.into()))?;
    Ok(found(Good, "database", format!("{name}{version}")))
}

/// A setting: its name, the expression, the condition that a good value meets, and what another one means.
type Setting = (
    &'static str,
    &'static str,
    &'static str,
    Verdict,
    &'static str,
);

const POSTGRES: [Setting; 6] = [
    (
        "default_transaction_isolation",
        "current_setting('default_transaction_isolation')",
        "= 'read committed'",
        Warning,
        "locks in an open transaction need READ COMMITTED: begin it with run_transaction at that level",
    ),
    (
        "lock_timeout",
        "current_setting('lock_timeout')",
        "= '0'",
        Warning,
        "it ends waits for object locks that have no limit of their own, and `migrate`: set it to 0 for this user",
    ),
    (
        "statement_timeout",
        "current_setting('statement_timeout')",
        "= '0'",
        Warning,
        "it ends waits for object locks that have no limit of their own, and `migrate`: set it to 0 for this user",
    ),
    (
        "idle_in_transaction_session_timeout",
        "current_setting('idle_in_transaction_session_timeout')",
        "<> '0'",
        Warning,
        "a transaction that sleeps keeps its locks: set a limit, such as 5min",
    ),
    (
        "synchronous_commit",
        "current_setting('synchronous_commit')",
        "<> 'off'",
        Warning,
        "a crash of the server may lose the last grants: slots may be granted twice: set it to on",
    ),
    (
        "functions",
        "COALESCE((SELECT string_agg(CAST(proname AS TEXT), ', ' ORDER BY proname) FROM pg_proc \
         WHERE proname LIKE 'diesel\\_locks\\_%' AND pg_function_is_visible(oid) \
         AND NOT has_function_privilege(oid, 'EXECUTE')), 'EXECUTE on all of them')",
        "= 'EXECUTE on all of them'",
        Problem,
        "this user lacks EXECUTE: docs/privileges.md has the GRANTs",
    ),
];

const MYSQL: [Setting; 9] = [
    (
        "innodb_lock_wait_timeout",
        "CONCAT(@@innodb_lock_wait_timeout, ' s')",
        "IS NOT NULL",
        Good,
        "",
    ),
    (
        "innodb_deadlock_detect",
        "CASE WHEN CAST(@@innodb_deadlock_detect AS CHAR) IN ('0', 'OFF') THEN 'OFF' ELSE 'ON' END",
        "= 'ON'",
        Warning,
        "a deadlock lasts until innodb_lock_wait_timeout has passed: set it to ON",
    ),
    (
        "innodb_flush_log_at_trx_commit",
        "CAST(@@innodb_flush_log_at_trx_commit AS CHAR)",
        "<> '0'",
        Warning,
        "a crash of the server may lose the last grants: slots may be granted twice: set it to 1",
    ),
    (
        "limit of statements",
        "CONCAT(/*!80000 'max_execution_time = ', @@max_execution_time *//*M!100100 \
         'max_statement_time = ', CAST(@@max_statement_time AS DOUBLE) */)",
        "LIKE '% = 0'",
        Warning,
        "it ends statements that wait, and `migrate`: set it to 0 for this user",
    ),
    (
        "autocommit",
        "CASE WHEN @@autocommit = 1 THEN 'ON' ELSE 'OFF' END",
        "= 'ON'",
        Problem,
        "leases are refused: set it to ON",
    ),
    (
        "completion_type",
        "CAST(@@completion_type AS CHAR)",
        "= 'NO_CHAIN'",
        Problem,
        "transactions are refused after a COMMIT: set it to NO_CHAIN",
    ),
    (
        "binary log",
        "CASE WHEN @@log_bin = 1 AND @@binlog_format = 'STATEMENT' THEN 'STATEMENT' ELSE 'suitable' END",
        "= 'suitable'",
        Problem,
        "object locks are refused at READ COMMITTED: set binlog_format = ROW",
    ),
    (
        "wait_timeout",
        "CONCAT(@@wait_timeout, ' s')",
        "+ 0 BETWEEN 60 AND 3600",
        Warning,
        "a client whose machine lost power keeps its locks for so long, and one that sleeps longer loses them: set it to 600",
    ),
    (
        "read_only",
        "CASE WHEN CAST(@@read_only AS CHAR) IN ('0', 'OFF') THEN 'OFF' ELSE 'ON' END",
        "= 'OFF'",
        Warning,
        "most users can't lock anything on this server: connect to the primary",
    ),
];

const SQLITE: [Setting; 1] = [(
    "journal_mode",
    "(SELECT journal_mode FROM pragma_journal_mode())",
    "= 'wal'",
    Problem,
    "readers and writers block each other: `diesel-locks migrate`, or `operation::sqlite::prepare` in the application, sets WAL mode",
)];

pub(super) fn findings(conn: &mut AnyConnection) -> Vec<Finding> {
    let mut findings = Vec::new();
    let settings: &[Setting] = match conn.engine() {
        Engine::Postgres => &POSTGRES,
        Engine::Mysql => &MYSQL,
        Engine::Sqlite => &SQLITE,
    };
    for &(subject, expression, good, verdict, meaning) in settings {
        let is_good = sql::<Bool>(&format!("{expression} {good}"));
        let read = diesel::select((sql::<Text>(expression), is_good)).get_result(conn);
        findings.push(match read as QueryResult<(String, bool)> {
            Ok((value, true)) => found(Good, subject, value),
            Ok((value, false)) => found(verdict, subject, format!("{value}: {meaning}")),
            Err(error) => found(Warning, subject, format!("can't be read: {error}")),
        });
    }
    match conn.engine() {
        Engine::Mysql => findings.push(isolation(conn)),
        Engine::Sqlite => {
            let text = "each connection of an application sets its own: operation::sqlite::prepare sets 5 s";
            findings.push(found(Good, "busy_timeout", text));
        }
        Engine::Postgres => {}
    }
    findings
}

/// MariaDB has another name for it up to version 11.0.
fn isolation(conn: &mut AnyConnection) -> Finding {
    let level = value(conn, "@@transaction_isolation").or_else(|_| value(conn, "@@tx_isolation"));
    match level.as_deref() {
        Ok("READ-COMMITTED") => found(Good, "isolation", "READ-COMMITTED"),
        Ok(level) => {
            let text = "locks in an open transaction need READ COMMITTED: begin it with run_transaction at that level";
            // The default of the server.
            let is_usual = level == "REPEATABLE-READ";
            let verdict = if is_usual { Good } else { Warning };
            found(verdict, "isolation", format!("{level}: {text}"))
        }
        Err(error) => found(Warning, "isolation", format!("can't be read: {error}")),
    }
}
