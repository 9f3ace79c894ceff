//! `doctor` finds set-ups that are broken, says what to do, and does not find it where they are not.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;

use diesel::connection::SimpleConnection;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::testing::{TempDir, path_in};

use crate::cli::{Cli, on_engines};
use crate::doctor::findings;

on_engines!(
    first_migrations_alone_are_a_problem,
    changed_tables_are_a_problem,
);

fn open(cli: &Cli) -> AnyConnection {
    AnyConnection::open(&Database::from_url(&cli.url).expect("a URL")).expect("a connection")
}

/// What it says of a subject, other than that it is as it should be.
fn complaints(cli: &Cli, code: i32, subject: &str) -> Vec<(String, String)> {
    let findings = findings(cli, code).into_iter();
    let bad = findings.filter(|it| it.0 != "ok" && it.1 == subject);
    bad.map(|it| (it.0, it.2)).collect()
}

fn assert_healthy(cli: &Cli, subject: &str) {
    let none: [(String, String); 0] = [];
    assert_eq!(complaints(cli, 0, subject), none);
}

/// One complaint, with the parts that name the cause and the remedy. A problem sets the exit code.
fn assert_found(cli: &Cli, verdict: &str, subject: &str, parts: &[&str]) {
    let found = complaints(cli, i32::from(verdict == "problem"), subject);
    let [(found_verdict, text)] = &found[..] else {
        panic!("{subject}: {found:?}");
    };
    assert_eq!(found_verdict, verdict, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn first_migrations_alone_are_a_problem(url: &str) {
    let cli = Cli::new(url);
    assert_healthy(&cli, "migrations");
    let undo = "DROP TABLE diesel_locks_sequences; \
         DELETE FROM __diesel_schema_migrations WHERE version LIKE '%diesellocks0003'";
    open(&cli).batch_execute(undo).expect("the last is undone");
    let parts = ["1 migration has not run: run `diesel-locks migrate`"];
    assert_found(&cli, "problem", "migrations", &parts);
    cli.text(&["migrate"]);
    assert_healthy(&cli, "migrations");
}

/// `migrate` does not restore them.
fn changed_tables_are_a_problem(url: &str) {
    let cli = Cli::new(url);
    assert_healthy(&cli, "tables");
    for (change, missing) in [
        (
            "ALTER TABLE diesel_locks_slots DROP COLUMN data",
            "recorded as run, but the database has no diesel_locks_slots.data ",
        ),
        (
            "DROP TABLE diesel_locks_slots",
            "recorded as run, but the database has no diesel_locks_slots.name ",
        ),
    ] {
        open(&cli).batch_execute(change).expect(change);
        assert_found(&cli, "problem", "tables", &[missing]);
    }
}

#[test]
fn sqlite_file_without_wal_mode_is_a_problem() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    assert_healthy(&cli, "journal_mode");
    let mut conn = open(&cli);
    conn.batch_execute("PRAGMA journal_mode = DELETE")
        .expect("the mode is set");
    drop(conn);
    let parts = [
        "delete: readers and writers block each other",
        "in the application, sets WAL mode",
    ];
    assert_found(&cli, "problem", "journal_mode", &parts);
    cli.text(&["migrate"]);
    assert_healthy(&cli, "journal_mode");
}

#[test]
fn read_only_sqlite_file_is_a_problem() {
    let directory = TempDir::new().expect("a directory");
    let path = path_in(&directory, "app.db");
    assert_healthy(&Cli::new(&path), "object locks");
    let read_only = Cli {
        url: format!("file:{path}?mode=ro"),
    };
    let parts = ["read-only", "make the file and its directory writable"];
    assert_found(&read_only, "problem", "object locks", &parts);
}

#[test]
fn sqlite_transaction_that_stays_open_is_a_problem() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    assert_healthy(&cli, "object locks");
    let mut writer = open(&cli);
    writer.begin("BEGIN IMMEDIATE").expect("it writes");
    let parts = [
        "another connection has written for 5s",
        "end its transaction",
    ];
    assert_found(&cli, "problem", "object locks", &parts);
    // The privileges were not tried: each statement would wait.
    assert!(!findings(&cli, 1).iter().any(|it| it.1 == "privileges"));
    writer.roll_back().expect("it ends");
    assert_healthy(&cli, "object locks");
}
