//! `migrate` and `migrations write`.

use std::fs;

use program_support::testing::TempDir;

use crate::cli::{Cli, on_engines};

on_engines!(tables_are_created_once, migrations_are_written);

fn tables_are_created_once(url: &str) {
    let cli = Cli::new(url);
    assert!(cli.text(&["migrate"]).starts_with("nothing to do"));
    assert_eq!(cli.json(&["migrate"])["ran"], serde_json::json!([]));
}

fn migrations_are_written(url: &str) {
    // Without a database.
    let cli = Cli {
        url: url.to_owned(),
    };
    let directory = TempDir::new().expect("a directory");
    let folder = directory.path().join("migrations").display().to_string();
    let written = cli.json(&["migrations", "write", &folder]);
    let first = written["written"][0].as_str().expect("a path");
    let sql = fs::read_to_string(first).expect("SQL");
    assert!(
        first.ends_with("0001_object_locks/up.sql") && sql.contains("diesel_locks_objects"),
        "{first}"
    );
    assert!(
        cli.text(&["migrations", "write", &folder])
            .starts_with("nothing to do")
    );
    fs::write(first, "SELECT 1").expect("a file");
    let error = cli.refused(1, &["migrations", "write", &folder]);
    assert!(error.contains(first), "{error}");
}

#[test]
fn migrations_of_an_engine_are_written_without_a_url() {
    let cli = Cli { url: String::new() };
    let directory = TempDir::new().expect("a directory");
    let folder = directory.path().display().to_string();
    let text = cli.text(&["migrations", "write", &folder, "--engine", "sqlite"]);
    assert!(text.starts_with("wrote 6 files:\n  "), "{text}");
}
