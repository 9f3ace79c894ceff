//! Which strategies lose updates on which engine.

use std::collections::HashMap;
use std::process::Command;

use program_support::on_servers;
use program_support::testing::{TempDir, path_in};

/// The rows of the table that a successful run prints: the engine and the level, and the cells in the order of strategies.
/// A time is shown as "right".
fn rows(arguments: &[&str]) -> Vec<(String, Vec<String>)> {
    let output = Command::new(env!("CARGO_BIN_EXE_row-locking-matrix"))
        .args(["--connections", "3", "--numbers", "10"])
        .args(arguments)
        .output()
        .expect("the program starts");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = table.lines().skip(2).filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let row = cells.next()?.to_owned();
        let cells = cells.map(|cell| match cell.split_once(' ') {
            Some((_, "µs" | "ms")) => "right".to_owned(),
            _ => cell.to_owned(),
        });
        Some((row, cells.collect()))
    });
    rows.collect()
}

/// What each cell begins with.
fn verdicts(cells: &[String]) -> Vec<&str> {
    let verdicts = cells.iter().map(|cell| cell.split(':').next());
    verdicts.map(Option::unwrap_or_default).collect()
}

/// The number of refused transactions in a cell.
fn refused(cell: &str) -> u32 {
    let mut words = cell.split(' ');
    assert_eq!(words.next(), Some("Refused:"), "{cell}");
    words.next().and_then(|word| word.parse().ok()).expect(cell)
}

const LOST: &str = "**Failed**";

/// MySQL loses updates at REPEATABLE READ too, and so do older versions of MariaDB. Newer ones refuse to change a row that
/// changed since the snapshot.
fn updates_are_lost_at_read_committed_and_refused_at_serializable(url: &str) {
    let rows = rows(&["--database-url", url]);
    // And SQLite.
    assert_eq!(rows.len(), 3 + 1);
    let rows: HashMap<&str, &Vec<String>> = rows
        .iter()
        .filter_map(|(row, cells)| Some((row.split_once(", ")?.1, cells)))
        .take(3)
        .collect();
    if url.starts_with("mysql") {
        assert_eq!(
            verdicts(rows["READ COMMITTED"]),
            [LOST, "Skipped", "right", "Skipped", "right", "right"]
        );
        assert_ne!(rows["REPEATABLE READ"][0], "right");
        assert!(rows["SERIALIZABLE"][0].contains("deadlock"));
        assert!(refused(&rows["SERIALIZABLE"][0]) >= 2);
        return;
    }
    assert_eq!(
        verdicts(rows["READ COMMITTED"]),
        [LOST, LOST, "right", "right", "right", "right"]
    );
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let cells = rows[isolation];
        assert!(!verdicts(cells).contains(&LOST), "{cells:?}");
        for cell in &cells[..2] {
            assert!(
                refused(cell) >= 2 && cell.contains("serialization"),
                "{cell}"
            );
        }
    }
}

on_servers!(updates_are_lost_at_read_committed_and_refused_at_serializable);

#[test]
fn late_upgrade_of_a_reader_is_refused() {
    let rows = rows(&[]);
    let [(row, cells)] = &rows[..] else {
        panic!("not one row: {rows:?}");
    };
    assert!(
        row.starts_with("SQLite 3.") && row.ends_with(", SERIALIZABLE"),
        "{row}"
    );
    assert_eq!(
        verdicts(cells),
        ["Refused", "Skipped", "Skipped", "Skipped", "right", "right"]
    );
    // All but one of the connections that read at the same time.
    assert!(
        refused(&cells[0]) >= 2 && cells[0].contains("busy"),
        "{cells:?}"
    );
}

#[test]
fn a_given_database_can_be_used_again() {
    let directory = TempDir::new().expect("a directory");
    let path = path_in(&directory, "given.sqlite");
    for _ in 0..2 {
        assert_eq!(rows(&["--database-url", &path]).len(), 2);
    }
}
