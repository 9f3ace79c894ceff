//! The Diesel CLI: it prints these modules from the migrations, and an application uses it as the README says.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use diesel_locks::InspectExt;
use diesel_locks::migrations::{WriteError, write_to};

use crate::behaviour::slots::slots_of;
use crate::support::{Backend, mysql::Mysql, postgres::Postgres, sqlite::Sqlite};

/// The Diesel CLI in a directory, on a database.
fn diesel(directory: &Path, url: &str, arguments: &[&str]) -> Output {
    let program = std::env::var("DIESEL_CLI").unwrap_or_else(|_| "diesel".to_owned());
    Command::new(&program)
        .args(arguments)
        .args(["--database-url", url])
        .current_dir(directory)
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{program} can't be run ({error}): `cargo xtask test` installs it, or `cargo install \
                 diesel_cli --version ~2.3`; DIESEL_CLI is its path"
            )
        })
}

fn assert_succeeded(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

fn printed<B: Backend>() -> String {
    let database = B::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = diesel(directory, &database.url(), &["print-schema"]);
    assert_succeeded(&output);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The README's `diesel.toml`.
fn settings() -> &'static str {
    let (_, rest) = include_str!("../../README.md")
        .split_once("```toml\n[print_schema]")
        .expect("the settings of print-schema");
    let (rest, _) = rest.split_once("```").expect("an end");
    rest
}

/// What the README says about an application that runs its migrations by the Diesel CLI.
fn application_uses_the_cli<B: Backend>(write_to: fn(PathBuf) -> Result<Vec<PathBuf>, WriteError>) {
    let database = B::empty();
    let url = database.url();
    let mut conn = B::connect_to(&url);
    diesel_locks::migrate(&mut conn).expect("the tables");

    let application = tempfile::tempdir().expect("a directory");
    let directory = application.path();
    let diesel = |arguments: &[&str]| diesel(directory, &url, arguments);
    let write = |path: &str, text: &str| {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    write("Cargo.toml", "");
    write("diesel.toml", &format!("[print_schema]{}", settings()));
    write("src/schema.rs", "");
    write(
        "migrations/2026-01-01-000000_bonds/up.sql",
        "CREATE TABLE bonds (id INTEGER NOT NULL PRIMARY KEY)",
    );
    write(
        "migrations/2026-01-01-000000_bonds/down.sql",
        "DROP TABLE bonds",
    );

    assert_succeeded(&diesel(&["migration", "run"]));
    let schema = fs::read_to_string(directory.join("src/schema.rs")).expect("a schema");
    assert!(schema.contains("bonds (id)"), "{schema}");
    assert!(!schema.contains("diesel_locks"), "{schema}");
    assert_succeeded(&diesel(&["migration", "run", "--locked-schema"]));
    assert_succeeded(&diesel(&["migration", "redo"]));

    let refused = diesel(&["migration", "revert", "--all"]);
    let message = "Unable to find migration version 00000000000000diesellocks0003";
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{errors}");
    assert!(errors.contains(message), "{errors}");
    assert!(include_str!("../../README.md").contains(message));

    write_to(directory.join("migrations")).expect("the migrations");
    assert_succeeded(&diesel(&["migration", "revert", "--all"]));
    let error = conn.held_slots(&slots_of("any")).expect_err("no tables");
    assert!(error.is_missing_tables(), "{error}");
    assert_succeeded(&diesel(&["migration", "run"]));
    assert_eq!(
        diesel_locks::migrate(&mut conn).expect("the tables").len(),
        0
    );
    assert_succeeded(&diesel(&["migration", "redo", "--all"]));
}

fn assert_same(printed: &str, ours: &str) {
    let lines = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .filter(|line| !line.is_empty())
            .collect()
    };
    assert_eq!(lines(printed), lines(ours));
}

#[test]
fn postgres_is_as_printed() {
    assert_same(&printed::<Postgres>(), include_str!("schema/postgres.rs"));
}

/// Without the columns for indexes that MariaDB has and MySQL has not. No statement of Diesel's DSL reads them.
#[test]
fn mysql_is_as_printed() {
    let printed = printed::<Mysql>();
    let of_both = |line: &&str| !line.trim_start().starts_with("upper_");
    let printed: Vec<&str> = printed.lines().filter(of_both).collect();
    assert_same(&printed.join("\n"), include_str!("schema/mysql.rs"));
}

#[test]
fn sqlite_is_as_printed() {
    assert_same(&printed::<Sqlite>(), include_str!("schema/sqlite.rs"));
}

#[test]
fn postgres_application_uses_the_cli() {
    application_uses_the_cli::<Postgres>(write_to::<diesel::PgConnection>);
}

#[test]
fn mysql_application_uses_the_cli() {
    application_uses_the_cli::<Mysql>(write_to::<diesel::MysqlConnection>);
}

#[test]
fn sqlite_application_uses_the_cli() {
    application_uses_the_cli::<Sqlite>(write_to::<diesel::SqliteConnection>);
}
