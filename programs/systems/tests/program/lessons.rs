//! The lessons come out as expected.

use std::process::Command;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use program_support::on_servers;
use program_support::testing::{TempDir, path_in};

/// Runs the program. Returns its exit code and output.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lessons"))
        .args(arguments)
        .output()
        .expect("lessons starts");
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), printed)
}

/// All lessons come out as expected, and these words are among what is printed.
fn assert_as_expected(arguments: &[&str], words: &[&str]) {
    let (code, printed) = run(arguments);
    assert_eq!(code, Some(0), "{printed}");
    for words in [&["All results are as expected."], words].concat() {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

fn lessons_come_out_as_expected(url: &str) {
    let words = if url.starts_with("postgres") {
        ["FOR SHARE", "DEADLOCK", "SERIALIZATION FAILURE", "Lesson 4"]
    } else {
        [
            "LOCK IN SHARE MODE",
            "DEADLOCK",
            "at SERIALIZABLE",
            "Lesson 3",
        ]
    };
    // The second time with existing tables.
    for _ in 0..2 {
        assert_as_expected(&["--database-url", url], &words);
    }
}

on_servers!(lessons_come_out_as_expected);

#[test]
fn lessons_on_sqlite_come_out_as_expected() {
    let words = ["BUSY: database is locked", "BEGIN IMMEDIATE", "Lesson 2"];
    assert_as_expected(&[], &words);
}

/// A trigger that loses every update causes the unexpected result.
#[test]
fn unexpected_result_is_reported_and_fails() {
    let directory = TempDir::new().expect("a directory");
    let file = path_in(&directory, "lessons.sqlite3");
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
