//! The program, from its arguments to its output.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use program_support::on_servers;
use program_support::testing::{
    Run, Signal, TempDir, any_alive, children, path_in, signal, started, wait_until,
};

/// What must not be.
const HARM: [&str; 4] = ["missing", "stale", "duplicates", "errors"];

/// The program with `--json` and these arguments.
fn ingest(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingest"));
    command.arg("--json").args(arguments.split_whitespace());
    command
}

/// The program has run to its end.
fn completed(arguments: &str) -> Run {
    Run::of(&mut ingest(arguments))
}

/// The program has run to its end, and the table is right.
fn right(arguments: &str) -> Run {
    let run = completed(arguments);
    run.assert_code(0);
    run.assert_zero(&HARM);
    run
}

/// Without locks: wrong results are expected, and no failure. On a busy machine a run may have no two workers in one document.
fn assert_harmed(arguments: &str) {
    let is_harmed = (1..=20).any(|seed| {
        let run = completed(&format!("{arguments} --seed {seed} --unlocked"));
        run.assert_code(0);
        assert_eq!(run.outcome["locked"], false);
        run.sum(&HARM) > 0
    });
    assert!(is_harmed, "{arguments}");
}

fn runs_end_right_with_the_lock_and_not_without(url: &str) {
    let options = format!("--documents 2000 --database-url {url}");
    let run = right(&options);
    assert!(url.starts_with(run.outcome["backend"].as_str().expect("a text")));
    run.assert_numbers(&[("stored", 100)]);
    assert_harmed(&options);
}

on_servers!(runs_end_right_with_the_lock_and_not_without);

#[test]
fn a_locked_run_stores_every_id_once_in_its_newest_version() {
    let run = right("--documents 2000 --processes 2 --threads 3");
    assert_eq!(run.outcome["backend"], "sqlite");
    assert_eq!(run.outcome["locked"], true);
    run.assert_numbers(&[
        ("documents", 2000),
        ("handled", 2000),
        ("processes", 2),
        ("threads", 3),
        ("stored", 100),
        ("rejected", 0),
    ]);
    run.assert_some(&["updated", "dropped"]);
}

#[test]
fn without_the_lock_harm_is_shown_and_is_no_failure() {
    assert_harmed("--documents 5000");
}

fn document(id: &str, date: &str) -> String {
    format!("<r xmlns:c='urn:c'><c:ID>{id}</c:ID><c:Date>{date}</c:Date></r>")
}

fn write(directory: &TempDir, name: &str, text: &str) {
    fs::write(directory.path().join(name), text).expect("a file");
}

/// The arguments for the files of a directory.
fn input(directory: &TempDir) -> String {
    let directory = path_in(directory, "");
    format!("--input {directory} --id-element c:ID --timestamp-element c:Date")
}

#[test]
fn broken_files_are_rejected_by_name_and_the_others_stored() {
    let directory = TempDir::new().expect("a directory");
    let order = "061828591|01/10/2020|0|1.1|0|1";
    let cut = document("b", "2020-10-01").split_at(30).0.to_owned();
    for (name, text) in [
        ("old.xml", document(order, "2020-10-01")),
        ("new.XML", document(order, "2020-10-02")),
        ("upper.xml", document("A", "2020-10-01")),
        ("lower.xml", document("a", "2020-10-01")),
        ("accent.xml", document("á", "2020-10-01")),
        ("space.xml", document("a ", "2020-10-01")),
        ("cut.xml", cut),
        ("text.xml", "no XML".to_owned()),
        ("bare.xml", "<r/>".to_owned()),
        ("long.xml", document(&"x".repeat(256), "2020-10-01")),
        ("when.xml", document("c", "soon")),
        ("notes.txt", "left alone".to_owned()),
    ] {
        write(&directory, name, &text);
    }
    let run = completed(&input(&directory));
    run.assert_code(3);
    run.assert_numbers(&[("documents", 11), ("stored", 5), ("rejected", 5)]);
    run.assert_zero(&HARM);
    for (name, reason) in [
        ("cut.xml", "not well-formed XML: 1:31 "),
        ("text.xml", "not well-formed XML: 1:1 "),
        ("bare.xml", "the root has no child <c:ID>"),
        ("long.xml", "255"),
        (
            "when.xml",
            "\"soon\" is neither an xs:date nor an xs:dateTime",
        ),
    ] {
        let line = run.messages.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not mentioned: {run:?}"));
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn documents_of_one_timestamp_end_the_same_in_every_order() {
    let directory = TempDir::new().expect("a directory");
    for number in 0..10 {
        let text = format!("{}<!-- {number} -->", document("same", "2020-10-01"));
        write(&directory, &format!("{number}.xml"), &text);
    }
    for seed in 1..=3 {
        let run = right(&format!("{} --seed {seed}", input(&directory)));
        run.assert_numbers(&[("stored", 1)]);
    }
}

#[test]
fn documents_are_added_to_what_a_database_holds() {
    let directory = TempDir::new().expect("a directory");
    let database = format!("--database-url {}", path_in(&directory, "documents.sqlite"));
    let stored = |id: &str, date: &str| {
        write(&directory, "one.xml", &document(id, date));
        let run = right(&format!("{} {database}", input(&directory)));
        (run.number("inserted"), run.number("updated"))
    };
    assert_eq!(stored("a", "2020-10-01"), (1, 0));
    assert_eq!(stored("b", "2020-10-01"), (1, 0));
    right(&format!("--documents 100 {database}")).assert_numbers(&[("inserted", 5)]);
    assert_eq!(stored("a", "2020-10-02"), (0, 1));
    assert_eq!(stored("b", "2020-09-30"), (0, 0));
}

/// A run that is long enough to be interrupted.
struct Started {
    child: Child,
    arguments: String,
    _directory: TempDir,
}

impl Started {
    /// Starts a run, and waits until it has stored some documents.
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = path_in(&directory, "documents.sqlite");
        let arguments = format!("--documents 20000 --database-url {path}");
        let child = started(&mut ingest(&arguments), &path, "ingest_documents", 100);
        Self {
            child,
            arguments,
            _directory: directory,
        }
    }

    /// Waits for the end of the run, and runs the same command again. Returns both runs, and the time until the end of
    /// the first.
    fn end_and_repeat(self) -> (Run, Duration, Run) {
        let now = Instant::now();
        let ended = Run::from(self.child.wait_with_output().expect("ingest ends"));
        (ended, now.elapsed(), right(&self.arguments))
    }
}

#[test]
fn a_killed_writer_is_an_error_and_the_next_run_completes() {
    let run = Started::new();
    let writers = children(run.child.id());
    assert_eq!(writers.len(), 3);
    signal(writers[1], Signal::KILL);
    let (killed, _, repeated) = run.end_and_repeat();

    killed.assert_code(1);
    killed.assert_numbers(&[("writers_died", 1), ("errors", 1), ("duplicates", 0)]);
    assert!(killed.messages.contains(&writers[1].to_string()));
    assert!(killed.number("handled") < killed.number("documents"));
    assert!(repeated.number("inserted") < repeated.number("stored"));
}

#[test]
fn interrupting_ends_soon_with_what_was_done_and_the_next_run_completes() {
    let run = Started::new();
    signal(run.child.id(), Signal::INT);
    let (interrupted, ending, _) = run.end_and_repeat();

    assert!(ending < Duration::from_secs(20), "{ending:?}");
    interrupted.assert_code(130);
    assert_eq!(interrupted.outcome["interrupted"], true);
    interrupted.assert_zero(&["errors", "duplicates"]);
    let handled = interrupted.number("handled");
    assert!((1..20_000).contains(&handled), "{interrupted:?}");
}

#[test]
fn writers_end_with_a_killed_coordinator() {
    let mut run = Started::new();
    let writers = children(run.child.id());
    signal(run.child.id(), Signal::KILL);
    run.child.wait().expect("ingest ends");
    wait_until("all writers have ended", || !any_alive(&writers));
    right(&run.arguments);
}
