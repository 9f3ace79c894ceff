//! Runs on SQLite.

use crate::run::{Run, matrix};
use tempfile::TempDir;

const SMALL: [&str; 4] = ["--connections", "3", "--numbers", "10"];

#[test]
fn late_upgrade_of_a_reader_is_refused() {
    let run = Run::of(&SMALL);
    assert_eq!(run.engines(), 1);
    assert_eq!(
        run.verdicts("SQLite ", "SERIALIZABLE"),
        ["refused", "skipped", "skipped", "skipped", "right", "right"]
    );
    // All but one of the connections that read at the same time.
    assert!(run.number("SQLite ", "SERIALIZABLE", "plain", "busy") >= 2);
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        assert_eq!(run.verdicts("SQLite ", isolation), ["skipped"; 6]);
    }
}

#[test]
fn one_number_each_is_enough() {
    Run::of(&["--connections", "2", "--numbers", "1"]);
}

#[test]
fn a_given_database_can_be_used_again() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("given.sqlite");
    let given = ["--database-url", path.to_str().expect("UTF-8")];
    for _ in 0..2 {
        assert_eq!(Run::of(&[&SMALL[..], &given].concat()).engines(), 2);
    }
}

#[test]
fn the_markdown_has_a_row_for_each_level_that_the_engine_has() {
    for arguments in [&SMALL[..], &[&SMALL[..], &["--markdown"]].concat()] {
        let output = matrix(arguments).output();
        let output = output.expect("row-locking-matrix starts");
        assert!(output.status.success());
        let table = String::from_utf8_lossy(&output.stdout);
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 2 + 1, "{table}");
        assert!(
            rows.iter().all(|row| row.matches('|').count() == 8),
            "{table}"
        );
        assert!(rows[2].contains(", SERIALIZABLE | Refused: "), "{table}");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(
            messages.contains("--database-url postgres://"),
            "{messages}"
        );
    }
}
