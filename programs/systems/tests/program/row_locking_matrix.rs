//! Which strategies lose updates on which engine.

use std::process::Command;

use program_support::on_servers;
use program_support::testing::{Run, TempDir, assert_refused, path_in};
use serde_json::Value;

const SMALL: [&str; 4] = ["--connections", "3", "--numbers", "10"];

/// The program with these arguments.
fn matrix(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_row-locking-matrix"));
    command.args(arguments);
    command
}

/// The engines of a successful run.
fn engines(arguments: &[&str]) -> Vec<Value> {
    let run = Run::of(matrix(arguments).arg("--json"));
    run.assert_code(0);
    assert_eq!(run.outcome["violations"], serde_json::json!([]), "{run:?}");
    run.outcome["engines"].as_array().expect("engines").clone()
}

/// The cells of an engine at a level, in the order of strategies.
fn cells<'a>(engine: &'a Value, isolation: &str) -> Vec<&'a Value> {
    let cells = engine["cells"].as_array().expect("cells").iter();
    cells
        .filter(|cell| cell["isolation"] == isolation)
        .collect()
}

fn verdicts<'a>(engine: &'a Value, isolation: &str) -> Vec<&'a str> {
    let cells = cells(engine, isolation).into_iter();
    cells
        .map(|cell| cell["verdict"].as_str().expect("a verdict"))
        .collect()
}

/// A number in the cell of a strategy.
fn number(engine: &Value, isolation: &str, strategy: &str, field: &str) -> u64 {
    cells(engine, isolation)
        .into_iter()
        .find(|cell| cell["strategy"] == strategy)
        .and_then(|cell| cell[field].as_u64())
        .unwrap_or_else(|| panic!("no {field} of {isolation}, {strategy}: {engine:?}"))
}

/// MySQL loses updates at REPEATABLE READ too, and so do older versions of MariaDB. Newer ones refuse to change a row that
/// changed since the snapshot.
fn updates_are_lost_at_read_committed_and_refused_at_serializable(url: &str) {
    let engines = engines(&[&SMALL[..], &["--database-url", url]].concat());
    let engine = &engines[0];
    let verdicts = |isolation| verdicts(engine, isolation);
    if url.starts_with("mysql") {
        assert_eq!(
            verdicts("READ COMMITTED"),
            ["failed", "skipped", "right", "skipped", "right", "right"]
        );
        assert_ne!(verdicts("REPEATABLE READ")[0], "right");
        assert_eq!(verdicts("SERIALIZABLE")[0], "refused");
        assert!(number(engine, "SERIALIZABLE", "plain", "deadlocks") >= 2);
        return;
    }
    assert_eq!(
        verdicts("READ COMMITTED"),
        ["failed", "failed", "right", "right", "right", "right"]
    );
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let verdicts = verdicts(isolation);
        assert_eq!(verdicts[..2], ["refused", "refused"]);
        assert!(!verdicts.contains(&"failed"), "{verdicts:?}");
        for strategy in ["plain", "cursor"] {
            assert!(number(engine, isolation, strategy, "serialization_failures") >= 2);
        }
    }
}

on_servers!(updates_are_lost_at_read_committed_and_refused_at_serializable);

#[test]
fn late_upgrade_of_a_reader_is_refused() {
    let engines = engines(&SMALL);
    assert_eq!(engines.len(), 1);
    assert_eq!(
        verdicts(&engines[0], "SERIALIZABLE"),
        ["refused", "skipped", "skipped", "skipped", "right", "right"]
    );
    // All but one of the connections that read at the same time.
    assert!(number(&engines[0], "SERIALIZABLE", "plain", "busy") >= 2);
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        assert_eq!(verdicts(&engines[0], isolation), ["skipped"; 6]);
    }
}

#[test]
fn one_number_each_is_enough() {
    engines(&["--connections", "2", "--numbers", "1"]);
}

#[test]
fn a_given_database_can_be_used_again() {
    let directory = TempDir::new().expect("a directory");
    let given = ["--database-url", &path_in(&directory, "given.sqlite")];
    for _ in 0..2 {
        assert_eq!(engines(&[&SMALL[..], &given].concat()).len(), 2);
    }
}

#[test]
fn the_table_has_a_row_for_each_level_that_the_engine_has() {
    let output = matrix(&SMALL).output().expect("the program starts");
    assert!(output.status.success());
    let table = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 2 + 1, "{table}");
    assert!(rows.iter().all(|row| row.matches('|').count() == 8));
    assert!(rows[2].contains(", SERIALIZABLE | Refused: "), "{table}");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("--database-url postgres://"));
}

#[test]
fn unusable_arguments_are_refused() {
    let cases = [
        (["--database-url", "/no/such/directory/x"], "can't connect"),
        (["--connections", "1"], "1 is not in 2..=200"),
        (["--numbers", "0"], "0 is not in 1..=1000000"),
    ];
    assert_refused(|| matrix(&[]), &cases);
}
