//! Operations that did not come back.

use torture_checker::Violation::Hung;
use torture_history::{FaultKind, Record};

use crate::play::{at, locking};
use crate::right::right;

#[test]
fn an_operation_that_took_too_long() {
    let mut play = right();
    play.lock(1, &[3], [1000, 1001, 1002, 11_000]);
    play.is_right();
    play.lock(2, &[4], [1000, 1001, 1002, 11_001]);
    play.finds(&[(Hung, 1)]);
    // Where to look when it is still there.
    let told = play.verdict().unwrap().to_string();
    assert!(told.contains(", thread 34 of pid 1002, took"), "{told}");
}

#[test]
fn a_process_that_was_paused_is_given_the_time() {
    let mut play = right();
    // Two seconds together: one of the pauses began before.
    play.fault(FaultKind::Pause, Some(1), 500, 2000);
    play.fault(FaultKind::Pause, Some(1), 1500, 2500);
    play.fault(FaultKind::Pause, Some(1), 1600, 1700);
    play.fault(FaultKind::Pause, Some(1), 3000, 3500);
    play.lock(1, &[3], [1000, 1001, 1002, 13_000]);
    play.is_right();
    play.lock(1, &[4], [1000, 1001, 1002, 13_001]);
    play.finds(&[(Hung, 1)]);
}

#[test]
fn the_pause_of_another_worker_is_no_excuse() {
    let mut play = right();
    play.fault(FaultKind::Pause, Some(2), 1000, 3000);
    play.fault(FaultKind::BlackHole, None, 1000, 3000);
    play.lock(1, &[3], [1000, 1001, 1002, 11_001]);
    play.finds(&[(Hung, 1)]);
}

#[test]
fn an_operation_without_an_end_in_a_process_that_stopped() {
    let mut play = right();
    play.begin(1, locking(&[3]), 1000);
    play.finds(&[(Hung, 1)]);
    // Whoever was killed once it had stopped did not take it along.
    play.limits.killed.insert(1);
    play.finds(&[(Hung, 1)]);
}

#[test]
fn an_operation_without_an_end_in_a_process_that_nobody_killed() {
    let mut play = right();
    play.begin(11, locking(&[3]), 1000);
    play.vanished.insert(11);
    play.finds(&[(Hung, 1)]);
}

#[test]
fn a_process_that_vanished_between_operations() {
    let mut play = right();
    play.lock(11, &[3], [1000, 1001, 1002, 1003]);
    play.vanished.insert(11);
    play.finds(&[(Hung, 1)]);
    play.limits.killed.insert(11);
    play.is_right();
}

#[test]
fn an_operation_that_hung_until_its_process_was_killed() {
    let mut play = right();
    play.begin(11, locking(&[3]), 1000);
    // Another thread goes on.
    play.lock(11, &[4], [11_000, 11_001, 11_002, 11_003]);
    play.kill(11);
    play.finds(&[(Hung, 1)]);
}

#[test]
fn a_history_of_its_first_line_only() {
    let mut play = right();
    let process = Record::Process {
        process: 11,
        worker: 1,
        pid: 7,
        at: at(1000),
    };
    play.records.insert(11, vec![process]);
    play.records.insert(12, Vec::new());
    play.kill(11);
    play.kill(12);
    play.is_right();
}
