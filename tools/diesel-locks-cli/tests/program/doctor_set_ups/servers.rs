//! Settings, privileges and limits of a user of a server.

use diesel::connection::SimpleConnection;
use program_support::database::Engine;
use program_support::on_servers;

use super::{assert_found, assert_healthy, complaints, open};
use crate::cli::Cli;
use crate::doctor::findings;
use crate::user::{TABLES, User};

on_servers!(
    missing_privilege_is_a_problem,
    read_only_user_is_a_problem,
    other_isolation_is_a_warning,
    connections_that_are_nearly_used_up_are_a_warning,
);

/// The name of a setting of transactions on MySQL or MariaDB.
fn of_transactions(cli: &Cli, setting: &str) -> &'static str {
    let is_old = open(cli)
        .batch_execute(&format!("DO @@transaction_{setting}"))
        .is_err();
    match (setting, is_old) {
        ("read_only", true) => "tx_read_only",
        ("read_only", false) => "transaction_read_only",
        (_, true) => "tx_isolation",
        (_, false) => "transaction_isolation",
    }
}

/// Of docs/privileges.md: the lines for PostgreSQL, or for MySQL and MariaDB.
fn documented_grants(engine: Engine) -> impl Iterator<Item = &'static str> {
    let document = include_str!("../../../../../docs/privileges.md");
    let block = if engine == Engine::Postgres { 1 } else { 2 };
    let block = document.split("```sql\n").nth(block).expect("a block");
    let (block, _) = block.split_once("```").expect("an end");
    block.lines().map(|line| line.trim_end_matches(';'))
}

fn missing_privilege_is_a_problem(url: &str) {
    let cli = Cli::new(url);
    let mut user = User::create(&cli);
    let grantee = user.grantee();
    for table in TABLES {
        user.by_owner(&format!("REVOKE ALL ON {table} FROM {grantee}"));
    }
    let mut on_tables = Vec::new();
    for grant in documented_grants(open(&cli).engine()) {
        let (grant, _) = grant.split_once(" TO ").expect("a user");
        user.by_owner(&format!("{grant} TO {grantee}"));
        let (privileges, object) = grant.split_once(" ON ").expect("an object");
        if TABLES.contains(&object) {
            let privileges = privileges.strip_prefix("GRANT ").expect("a GRANT");
            on_tables.extend(privileges.split(", ").map(|it| (it, object)));
        }
    }
    // They are enough, and it finds the lack of each.
    assert_healthy(&user.cli, "privileges");
    for (privilege, table) in on_tables {
        user.by_owner(&format!("REVOKE {privilege} ON {table} FROM {grantee}"));
        let lack = format!("would lack {privilege} on {table} (");
        let parts = [lack.as_str(), "docs/privileges.md has the GRANTs"];
        assert_found(&user.cli, "problem", "privileges", &parts);
        user.by_owner(&format!("GRANT {privilege} ON {table} TO {grantee}"));
    }
    assert_healthy(&user.cli, "privileges");
    user.by_owner(&format!(
        "REVOKE SELECT, INSERT ON diesel_locks_fences FROM {grantee}"
    ));
    let parts = [
        "SELECT on diesel_locks_fences (",
        "INSERT on diesel_locks_fences (",
    ];
    assert_found(&user.cli, "problem", "privileges", &parts);
}

fn read_only_user_is_a_problem(url: &str) {
    let cli = Cli::new(url);
    let mut user = User::create(&cli);
    assert_healthy(&user.cli, "object locks");
    let (setting, value, remedy) = match open(&cli).engine() {
        Engine::Postgres => (
            "default_transaction_read_only",
            "on",
            "set default_transaction_read_only to off",
        ),
        _ => (
            of_transactions(&cli, "read_only"),
            "1",
            "set transaction_read_only (MariaDB: tx_read_only) to OFF",
        ),
    };
    user.set(setting, value);
    let parts = ["read-only", remedy];
    assert_found(&user.cli, "problem", "object locks", &parts);
}

fn other_isolation_is_a_warning(url: &str) {
    let cli = Cli::new(url);
    let mut user = User::create(&cli);
    let (subject, setting) = match open(&cli).engine() {
        Engine::Postgres => {
            let setting = "default_transaction_isolation";
            (setting, setting)
        }
        _ => ("isolation", of_transactions(&cli, "isolation")),
    };
    assert_healthy(&user.cli, subject);
    user.set(setting, "\"SERIALIZABLE\"");
    let parts = ["begin it with run_transaction at that level"];
    assert_found(&user.cli, "warning", subject, &parts);
}

fn connections_that_are_nearly_used_up_are_a_warning(url: &str) {
    let cli = Cli::new(url);
    let mut user = User::create(&cli);
    let (grantee, is_postgres) = (user.grantee(), open(&cli).engine() == Engine::Postgres);
    let (limit, remedy) = if is_postgres {
        (
            format!("ALTER ROLE {grantee} CONNECTION LIMIT 5"),
            "ALTER ROLE .. CONNECTION LIMIT",
        )
    } else {
        (
            format!("ALTER USER {grantee} WITH MAX_USER_CONNECTIONS 5"),
            "ALTER USER .. WITH MAX_USER_CONNECTIONS",
        )
    };
    user.by_owner(&limit);
    let others: Vec<_> = (0..2).map(|_| open(&user.cli)).collect();
    assert_healthy(&user.cli, "connections");
    let last = open(&user.cli);
    let parts = [
        "4 of the 5 that this user may have are used",
        "make the pools smaller",
        remedy,
    ];
    assert_found(&user.cli, "warning", "connections", &parts);
    drop((others, last));
}

#[cfg(feature = "postgres")]
#[test]
fn settings_of_a_role_are_found() {
    let own =
        program_support::testing::OwnDatabase::<diesel::PgConnection>::create("PG_DATABASE_URL");
    let cli = Cli::new(&own.url);
    let mut user = User::create(&cli);
    user.set("idle_in_transaction_session_timeout", "'5min'");
    assert_healthy(&user.cli, "idle_in_transaction_session_timeout");
    let shown = findings(&user.cli, 0)
        .into_iter()
        .find(|it| it.1 == "idle_in_transaction_session_timeout");
    assert_eq!(shown.expect("a finding").2, "5min");
    for (setting, value, parts) in [
        ("lock_timeout", "'2s'", ["2s: it ends waits", "set it to 0"]),
        (
            "statement_timeout",
            "'3s'",
            ["3s: it ends waits", "set it to 0"],
        ),
        (
            "idle_in_transaction_session_timeout",
            "0",
            ["a transaction that sleeps keeps its locks", "set a limit"],
        ),
        (
            "synchronous_commit",
            "off",
            ["slots may be granted twice", "set it to on"],
        ),
    ] {
        user.set("idle_in_transaction_session_timeout", "'5min'");
        assert_healthy(&user.cli, setting);
        user.set(setting, value);
        assert_found(&user.cli, "warning", setting, &parts);
    }
}

#[cfg(feature = "postgres")]
#[test]
fn what_postgres_hides_from_a_role_is_a_problem() {
    let own =
        program_support::testing::OwnDatabase::<diesel::PgConnection>::create("PG_DATABASE_URL");
    let cli = Cli::new(&own.url);
    let mut user = User::create(&cli);
    let guide = "docs/privileges.md has";

    // The lock that `doctor` acquires does not call this function.
    let function = "ON FUNCTION diesel_locks_acquire_slot";
    assert_healthy(&user.cli, "functions");
    user.by_owner(&format!("REVOKE EXECUTE {function} FROM PUBLIC"));
    let parts = ["diesel_locks_acquire_slot: this user lacks EXECUTE", guide];
    assert_found(&user.cli, "problem", "functions", &parts);
    user.by_owner(&format!("GRANT EXECUTE {function} TO {}", user.grantee()));
    assert_healthy(&user.cli, "functions");

    let security = "row-level security";
    assert_healthy(&user.cli, security);
    user.by_owner("ALTER TABLE diesel_locks_slots ENABLE ROW LEVEL SECURITY");
    let of_slots = "no policy permits this user SELECT on diesel_locks_slots, INSERT on diesel_locks_slots, \
         UPDATE on diesel_locks_slots, DELETE on diesel_locks_slots: ";
    assert_found(&user.cli, "problem", security, &[of_slots, guide]);
    // A policy that restricts others permits nothing, and one for reading does not permit writing.
    user.by_owner("CREATE POLICY other ON diesel_locks_slots AS RESTRICTIVE USING (true)");
    assert_found(&user.cli, "problem", security, &[of_slots]);
    user.by_owner("CREATE POLICY reading ON diesel_locks_slots FOR SELECT USING (true)");
    let parts = ["this user INSERT on diesel_locks_slots, UPDATE on"];
    assert_found(&user.cli, "problem", security, &parts);
    user.by_owner("CREATE POLICY diesel_locks ON diesel_locks_slots USING (true)");
    assert_healthy(&user.cli, security);

    // Tables of another schema are found with the search_path that this user has.
    user.by_owner("CREATE SCHEMA locks; ALTER TABLE diesel_locks_slots SET SCHEMA locks");
    let parts = ["add its schema to the search_path", "USAGE"];
    assert_found(&user.cli, "problem", "tables", &parts);
    user.by_owner("ALTER TABLE locks.diesel_locks_slots SET SCHEMA public");
    assert_healthy(&user.cli, "tables");
}

#[cfg(feature = "postgres")]
#[test]
fn missing_functions_of_postgres_are_a_problem() {
    let own =
        program_support::testing::OwnDatabase::<diesel::PgConnection>::create("PG_DATABASE_URL");
    let cli = Cli::new(&own.url);
    let mut conn = open(&cli);
    let mut change = |sql: &str| conn.batch_execute(sql).expect(sql);
    change("DROP FUNCTION diesel_locks_acquire_slot");
    let parts = ["recorded as run, but the database has no diesel_locks_acquire_slot("];
    assert_found(&cli, "problem", "tables", &parts);
    // As after `pg_dump --table 'diesel_locks_*'`.
    change("DROP FUNCTION diesel_locks_try_acquire; DROP TABLE __diesel_schema_migrations");
    let parts = ["diesel_locks_try_acquire", "restore it with the tables"];
    assert_found(&cli, "problem", "object locks", &parts);
}

/// Without it an operator's list fails as soon as a session holds a kept lock.
#[cfg(feature = "postgres")]
#[test]
fn operator_of_postgres_needs_the_table_of_objects() {
    let own =
        program_support::testing::OwnDatabase::<diesel::PgConnection>::create("PG_DATABASE_URL");
    let cli = Cli::new(&own.url);
    let mut user = User::reader(&cli);
    let found = complaints(&user.cli, 1, "list objects");
    assert!(
        matches!(&found[..], [(verdict, text)] if verdict == "warning" && text.contains("diesel_locks_objects")),
        "{found:?}"
    );
    let grantee = user.grantee();
    user.by_owner(&format!(
        "GRANT SELECT ON diesel_locks_objects TO {grantee}"
    ));
    assert!(complaints(&user.cli, 1, "list objects").is_empty());
}

#[cfg(feature = "mysql")]
#[test]
fn settings_of_mysql_sessions_are_found() {
    let own = program_support::testing::OwnDatabase::<diesel::MysqlConnection>::create(
        "MYSQL_DATABASE_URL",
    );
    let cli = Cli::new(&own.url);
    let mut user = User::create(&cli);
    for (setting, good, bad, verdict, parts) in [
        (
            "autocommit",
            "1",
            "0",
            "problem",
            ["leases are refused", "set it to ON"],
        ),
        (
            "completion_type",
            "\"NO_CHAIN\"",
            "\"CHAIN\"",
            "problem",
            [
                "transactions are refused after a COMMIT",
                "set it to NO_CHAIN",
            ],
        ),
        (
            "wait_timeout",
            "CAST(600 AS UNSIGNED)",
            "CAST(28800 AS UNSIGNED)",
            "warning",
            ["28800 s: ", "keeps its locks for so long"],
        ),
        (
            "wait_timeout",
            "CAST(60 AS UNSIGNED)",
            "CAST(1 AS UNSIGNED)",
            "warning",
            ["1 s: ", "one that sleeps longer loses them"],
        ),
        (
            "completion_type",
            "\"NO_CHAIN\"",
            "\"RELEASE\"",
            "problem",
            ["RELEASE: ", "set it to NO_CHAIN"],
        ),
    ] {
        user.set(setting, good);
        assert_healthy(&user.cli, setting);
        user.set(setting, bad);
        assert_found(&user.cli, verdict, setting, &parts);
        // It is not found again by what fails because of it.
        let findings = findings(&user.cli, i32::from(verdict == "problem"));
        let others = findings
            .iter()
            .filter(|it| it.0 == "problem" && it.1 != setting);
        assert_eq!(others.count(), 0, "{findings:?}");
    }
    let is_mysql = open(&cli).batch_execute("DO @@max_execution_time").is_ok();
    let (setting, shown) = if is_mysql {
        ("max_execution_time", "max_execution_time = 9000: ")
    } else {
        ("max_statement_time", "max_statement_time = 9000: ")
    };
    let subject = "limit of statements";
    user.set(setting, "CAST(0 AS UNSIGNED)");
    assert_healthy(&user.cli, subject);
    user.set(setting, "CAST(9000 AS UNSIGNED)");
    let parts = [shown, "set it to 0"];
    assert_found(&user.cli, "warning", subject, &parts);
    // It refuses none of this crate's statements.
    user.set("sql_safe_updates", "1");
    assert_healthy(&user.cli, "privileges");
}

#[cfg(feature = "mysql")]
#[test]
fn settings_of_mysql_servers_are_found() {
    let own = program_support::testing::OwnDatabase::<diesel::MysqlConnection>::create(
        "MYSQL_DATABASE_URL",
    );
    let cli = Cli::new(&own.url);
    let mut conn = open(&cli);
    let mut change = |sql: &str| conn.batch_execute(sql).expect(sql);
    for (setting, good, bad, part) in [
        (
            "innodb_flush_log_at_trx_commit",
            "2",
            "0",
            "slots may be granted twice",
        ),
        (
            "innodb_deadlock_detect",
            "ON",
            "OFF",
            "lasts until innodb_lock_wait_timeout",
        ),
    ] {
        change(&format!(
            "SET @before = @@GLOBAL.{setting}; SET GLOBAL {setting} = {good}"
        ));
        assert_healthy(&cli, setting);
        change(&format!("SET GLOBAL {setting} = {bad}"));
        assert_found(&cli, "warning", setting, &[part]);
        change(&format!("SET GLOBAL {setting} = @before"));
    }
    assert_healthy(&cli, "tables");
    change("ALTER TABLE diesel_locks_fences ENGINE = MyISAM");
    let parts = ["diesel_locks_fences: MyISAM, which has no transactions"];
    assert_found(&cli, "problem", "tables", &parts);
}
