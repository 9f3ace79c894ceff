//! `diesel_locks::schema` is what `diesel print-schema` prints from the migrations.

use std::process::Command;

use crate::support::{Backend, mysql::Mysql, postgres::Postgres, sqlite::Sqlite};

fn printed<B: Backend>() -> String {
    let program = std::env::var("DIESEL_CLI").unwrap_or_else(|_| "diesel".to_owned());
    let database = B::new();
    let output = Command::new(&program)
        .args(["print-schema", "--database-url"])
        .arg(database.url())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{program} can't be run ({error}): `cargo xtask test` installs it, or `cargo install \
                 diesel_cli --version ~2.3`; DIESEL_CLI is its path"
            )
        });
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
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
    assert_same(
        &printed::<Postgres>(),
        include_str!("../../src/schema/postgres.rs"),
    );
}

#[test]
fn mysql_is_as_printed() {
    assert_same(
        &printed::<Mysql>(),
        include_str!("../../src/schema/mysql.rs"),
    );
}

#[test]
fn sqlite_is_as_printed() {
    assert_same(
        &printed::<Sqlite>(),
        include_str!("../../src/schema/sqlite.rs"),
    );
}
