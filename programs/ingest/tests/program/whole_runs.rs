//! Runs on SQLite.

use std::fs;
use std::path::Path;

use crate::run::{assert_right, completed, ingest};
use program_test_support::assert_refused;
use tempfile::TempDir;

fn document(id: &str, date: &str) -> String {
    format!("<r xmlns:c='urn:c'><c:ID>{id}</c:ID><c:Date>{date}</c:Date></r>")
}

/// The arguments for the files of a directory.
fn input(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().expect("UTF-8");
    [
        "--input",
        directory,
        "--id-element",
        "c:ID",
        "--timestamp-element",
        "c:Date",
    ]
    .map(str::to_owned)
    .into()
}

fn database(directory: &TempDir) -> [String; 2] {
    let path = directory.path().join("documents.sqlite");
    [
        "--database-url".to_owned(),
        path.to_str().expect("UTF-8").to_owned(),
    ]
}

#[test]
fn a_locked_run_stores_every_id_once_in_its_newest_version() {
    let run = completed(&[
        "--documents",
        "2000",
        "--ids",
        "40",
        "--processes",
        "2",
        "--threads",
        "3",
    ]);
    assert_right(&run);
    assert_eq!(run.outcome["backend"], "sqlite");
    assert_eq!(run.outcome["locked"], true);
    run.assert_numbers(&[
        ("documents", 2000),
        ("processes", 2),
        ("threads", 3),
        ("stored", 40),
        ("rejected", 0),
    ]);
    run.number("waits");
    for field in ["longest_wait_ms", "per_second"] {
        assert!(run.outcome[field].is_f64(), "{field}: {run:?}");
    }
}

#[test]
fn kept_locks_and_repetitions_end_the_same() {
    let run = completed(&["--documents", "500", "--repeat", "3", "--retention", "kept"]);
    assert_right(&run);
    assert_eq!(run.number("handled"), 1500);
}

#[test]
fn without_the_lock_harm_is_shown_and_is_no_failure() {
    let run = completed(&["--documents", "5000", "--ids", "50", "--unlocked"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.outcome["locked"], false);
    let harm = ["missing", "stale", "duplicates", "errors"].map(|field| run.number(field));
    assert!(harm.iter().sum::<u64>() > 0, "{run:?}");
}

#[test]
fn broken_files_are_rejected_by_name_and_the_others_stored() {
    let directory = TempDir::new().expect("a directory");
    let files = [
        (
            "old.xml",
            document("061828591|01/10/2020|0|1.1|0|1", "2020-10-01"),
        ),
        (
            "new.XML",
            document("061828591|01/10/2020|0|1.1|0|1", "2020-10-02"),
        ),
        ("upper.xml", document("A", "2020-10-01")),
        ("lower.xml", document("a", "2020-10-01")),
        ("accent.xml", document("á", "2020-10-01")),
        ("space.xml", document("a ", "2020-10-01")),
        (
            "cut.xml",
            document("b", "2020-10-01").split_at(30).0.to_owned(),
        ),
        ("text.xml", "no XML".to_owned()),
        ("bare.xml", "<r/>".to_owned()),
        ("long.xml", document(&"x".repeat(256), "2020-10-01")),
        ("when.xml", document("c", "soon")),
        ("notes.txt", "left alone".to_owned()),
    ];
    for (name, text) in &files {
        fs::write(directory.path().join(name), text).expect("a file");
    }
    let run = completed(&input(directory.path()));
    assert_eq!(run.code, Some(3), "{run:?}");
    run.assert_numbers(&[
        ("documents", 11),
        ("stored", 5),
        ("rejected", 5),
        ("missing", 0),
        ("stale", 0),
        ("duplicates", 0),
        ("errors", 0),
    ]);
    for (name, reason) in [
        ("cut.xml", "not well-formed XML, line 1, column 31: "),
        ("text.xml", "not well-formed XML, line 1, column 1: "),
        ("bare.xml", "no child <c:ID>"),
        ("long.xml", "255"),
        ("when.xml", "xs:date"),
    ] {
        let line = run.messages.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not mentioned: {run:?}"));
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn a_run_of_which_nothing_could_be_read_fails() {
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("bare.xml"), "<r/>").expect("a file");
    let run = completed(&input(directory.path()));
    assert_eq!(run.code, Some(3), "{run:?}");
    assert_eq!(run.number("rejected"), 1);
}

#[test]
fn documents_of_one_timestamp_end_the_same_in_every_order() {
    let directory = TempDir::new().expect("a directory");
    for number in 0..10 {
        let text = format!("{}<!-- {number} -->", document("same", "2020-10-01"));
        fs::write(directory.path().join(format!("{number}.xml")), text).expect("a file");
    }
    for seed in ["1", "2", "3"] {
        let mut arguments = input(directory.path());
        arguments.extend(["--seed", seed, "--repeat", "1"].map(str::to_owned));
        let run = completed(&arguments);
        assert_right(&run);
        assert_eq!(run.number("stored"), 1);
    }
}

#[test]
fn files_are_added_to_what_a_database_holds_and_generated_documents_leave_them() {
    let directory = TempDir::new().expect("a directory");
    let database = database(&directory);
    let stored = |id: &str, date: &str| {
        fs::write(directory.path().join("one.xml"), document(id, date)).expect("a file");
        let run = completed(&[input(directory.path()), database.to_vec()].concat());
        assert_right(&run);
        (run.number("inserted"), run.number("updated"))
    };
    assert_eq!(stored("a", "2020-10-01"), (1, 0));
    assert_eq!(stored("b", "2020-10-01"), (1, 0));
    let generated = [
        ["--documents".to_owned(), "100".to_owned()],
        database.clone(),
    ]
    .concat();
    assert_right(&completed(&generated));
    assert_right(&completed(&generated));
    assert_eq!(stored("a", "2020-10-02"), (0, 1));
    assert_eq!(stored("b", "2020-09-30"), (0, 0));
}

#[test]
fn a_finished_run_of_generated_documents_starts_anew() {
    let directory = TempDir::new().expect("a directory");
    let arguments = [
        ["--documents".to_owned(), "100".to_owned()],
        database(&directory),
    ]
    .concat();
    for _ in 0..2 {
        let run = completed(&arguments);
        assert_right(&run);
        assert_eq!(run.number("inserted"), 5);
    }
}

#[test]
fn unusable_arguments_are_refused() {
    let cases = [
        (["--database-url", "oracle://x"], "not oracle://"),
        (["--database-url", ":memory:"], "name a file"),
        (["--input", "/no/such/directory"], "--id-element"),
        (["--documents", "0"], "--documents"),
    ];
    assert_refused(|| ingest::<&str>(&[]), &cases);
}
