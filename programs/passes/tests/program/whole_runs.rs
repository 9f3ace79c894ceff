//! Runs on SQLite.

use crate::run::{assert_right, completed, passes};
use program_test_support::{Run, assert_refused};
use tempfile::TempDir;

const SMALL: [&str; 4] = ["--meetings", "5", "--passes", "60"];

fn small(more: &[&str]) -> Run {
    completed(&[&SMALL, more].concat())
}

#[test]
fn every_meeting_has_its_passes_without_gaps_whatever_fails() {
    let run = small(&["--failures", "40", "--pairs", "20"]);
    assert_right(&run);
    assert_eq!(run.outcome["backend"], "sqlite");
    run.assert_numbers(&[("meetings", 5), ("passes", 300), ("workers", 8)]);
    let kinds = ["failed", "panicked", "disconnected"].map(|field| run.number(field));
    assert!(!kinds.contains(&0), "{run:?}");
    assert_eq!(kinds.iter().sum::<u64>(), run.number("rollbacks"));
    for field in ["seconds", "per_second"] {
        assert!(run.outcome[field].is_f64(), "{field}: {run:?}");
    }
}

#[test]
fn without_failures_nothing_is_rolled_back() {
    let run = small(&["--failures", "0", "--workers", "2"]);
    assert_right(&run);
    assert_eq!(run.number("rollbacks"), 0, "{run:?}");
}

#[test]
fn the_largest_number_read_without_a_lock_is_found_out() {
    let run = small(&["--careless", "max"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.outcome["careless"], "max");
    assert!(run.number("repeats") > 0, "{run:?}");
    assert_eq!(run.number("errors"), 0, "{run:?}");
}

#[test]
fn a_number_drawn_in_its_own_transaction_is_found_out() {
    let run = small(&["--careless", "own-transaction"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.number("gaps") > 0, "{run:?}");
    assert_eq!(run.number("repeats"), 0, "{run:?}");
    assert_eq!(run.number("errors"), 0, "{run:?}");
}

#[test]
fn a_second_run_on_a_database_has_meetings_of_its_own() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("passes.sqlite");
    let path = path.to_str().expect("UTF-8");
    let careless = small(&["--database-url", path, "--careless", "own-transaction"]);
    assert!(careless.number("gaps") > 0, "{careless:?}");
    let run = small(&["--database-url", path]);
    assert_right(&run);
    assert_eq!(run.number("passes"), 300, "{run:?}");
}

#[test]
fn unusable_arguments_are_refused() {
    let cases = [
        (["--database-url", "oracle://x"], "not oracle://"),
        (["--database-url", ":memory:"], "name a file"),
        (["--meetings", "0"], "--meetings"),
        (["--passes", "0"], "--passes"),
        (["--failures", "91"], "0..=90"),
        (["--careless", "luck"], "own-transaction"),
    ];
    assert_refused(|| passes(&[]), &cases);
}
