//! Runs on SQLite.

use crate::run::{assert_as_expected, run};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use tempfile::TempDir;

/// The path of a database in a new directory.
fn file() -> (TempDir, String) {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("lessons.sqlite3");
    (folder, file.to_str().expect("UTF-8").to_owned())
}

#[test]
fn lessons_on_sqlite_come_out_as_expected() {
    let words = ["BUSY: database is locked", "BEGIN IMMEDIATE", "Lesson 2"];
    assert_as_expected(&[], &words);
}

#[test]
fn a_file_can_be_used_again_in_any_journal_mode() {
    let (_folder, file) = file();
    for mode in ["DELETE", "WAL"] {
        let mut conn = SqliteConnection::establish(&file).expect("open");
        conn.batch_execute(&format!("PRAGMA journal_mode = {mode}"))
            .expect("nobody else uses it");
        assert_as_expected(&["--database-url", &file], &["BUSY: database is locked"]);
    }
}

/// A trigger that loses every update causes the unexpected result.
#[test]
fn unexpected_result_is_reported_and_fails() {
    let (_folder, file) = file();
    let mut conn = SqliteConnection::establish(&file).expect("open");
    conn.batch_execute(
        "CREATE TABLE lessons (id INTEGER PRIMARY KEY, n BIGINT NOT NULL); \
         CREATE TRIGGER thief AFTER UPDATE ON lessons \
         BEGIN UPDATE lessons SET n = 0 WHERE id = NEW.id; END",
    )
    .expect("a new file");
    let (code, printed) = run(&["--database-url", &file]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("UNEXPECTED: n of row 1 is 0"), "{printed}");
}

#[test]
fn unusable_databases_are_refused() {
    for (url, reason) in [("oracle://x", "not oracle://"), (":memory:", "name a file")] {
        let (code, printed) = run(&["--database-url", url]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains(reason), "{printed}");
    }
}
