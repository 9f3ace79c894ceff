//! Whether anything was done.

use torture_checker::Violation::NothingDone;
use torture_history::{ErrorKind, Outcome, Record, Task, Waiting};

use crate::play::{Play, failed, leasing};
use crate::right::right;

/// Somebody is at it again at this moment.
fn goes_on(play: &mut Play, ms: u64) {
    let op = play.begin(1, leasing("leader"), ms);
    play.end(op, Outcome::Refused, None, ms + 1);
}

#[test]
fn a_long_run_with_something_of_everything() {
    let mut play = right();
    goes_on(&mut play, 10_010);
    play.is_right();
}

#[test]
fn a_long_run_in_which_nothing_was_done() {
    let mut play = Play::new();
    goes_on(&mut play, 10);
    goes_on(&mut play, 10_009);
    play.is_right();
    goes_on(&mut play, 10_010);
    play.finds(&[(NothingDone, 10)]);
}

#[test]
fn one_kind_of_task_that_always_failed() {
    let mut play = right();
    let visitors: Vec<i64> = play
        .evidence
        .visits
        .drain(..)
        .map(|visit| visit.op)
        .collect();
    for record in play.records.values_mut().flatten() {
        if let Record::Ended { op, outcome, .. } = record
            && visitors.contains(&op.0)
        {
            *outcome = Outcome::RolledBack;
        }
    }
    play.is_right();
    goes_on(&mut play, 10_010);
    play.finds(&[(NothingDone, 1)]);
    let told = play.verdict().unwrap().to_string();
    assert!(told.contains("slot: 4 were begun"), "{told}");
    let late = play.begin(
        2,
        Task::Slot {
            wait: Waiting::AtMost(5),
        },
        10_010,
    );
    play.end(late, failed(ErrorKind::TimedOut), None, 10_016);
    play.finds(&[(NothingDone, 1)]);
    play.slot(3, [10_010, 10_011, 10_012, 10_013]);
    play.is_right();
}
