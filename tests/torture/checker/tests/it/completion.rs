//! Operations that did not come back.

use torture_checker::Violation::Hung;
use torture_history::{FaultKind, Record};

use crate::history_builder::{at, locking};
use crate::valid_history::valid_history;

#[test]
fn an_operation_that_took_too_long() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1002, 11_000]);
    builder.assert_no_violations();
    builder.lock(2, &[4], [1000, 1001, 1002, 11_001]);
    builder.finds(&[(Hung, 1)]);
    // Where to look when it is still there.
    let told = builder.verdict().unwrap().to_string();
    assert!(told.contains(", thread 43 of pid 1002, took"), "{told}");
}

#[test]
fn a_process_that_was_paused_is_given_the_time() {
    let mut builder = valid_history();
    // Two seconds together: one of the pauses began before.
    builder.fault(FaultKind::Pause, Some(1), 500, 2000);
    builder.fault(FaultKind::Pause, Some(1), 1500, 2500);
    builder.fault(FaultKind::Pause, Some(1), 1600, 1700);
    builder.fault(FaultKind::Pause, Some(1), 3000, 3500);
    builder.lock(1, &[3], [1000, 1001, 1002, 13_000]);
    builder.assert_no_violations();
    builder.lock(1, &[4], [1000, 1001, 1002, 13_001]);
    builder.finds(&[(Hung, 1)]);
}

#[test]
fn the_pause_of_another_worker_is_no_excuse() {
    let mut builder = valid_history();
    builder.fault(FaultKind::Pause, Some(2), 1000, 3000);
    builder.fault(FaultKind::BlackHole, None, 1000, 3000);
    builder.lock(1, &[3], [1000, 1001, 1002, 11_001]);
    builder.finds(&[(Hung, 1)]);
}

#[test]
fn an_operation_without_an_end_in_a_process_that_stopped() {
    let mut builder = valid_history();
    builder.begin(1, locking(&[3]), 1000);
    builder.finds(&[(Hung, 1)]);
    // A process that was killed after it had stopped did not end the operation.
    builder.limits.killed.insert(1);
    builder.finds(&[(Hung, 1)]);
}

#[test]
fn an_operation_without_an_end_in_a_process_that_was_not_killed() {
    let mut builder = valid_history();
    builder.begin(11, locking(&[3]), 1000);
    builder.vanished.insert(11);
    builder.finds(&[(Hung, 1)]);
}

#[test]
fn a_process_that_vanished_between_operations() {
    let mut builder = valid_history();
    builder.lock(11, &[3], [1000, 1001, 1002, 1003]);
    builder.vanished.insert(11);
    builder.finds(&[(Hung, 1)]);
    builder.limits.killed.insert(11);
    builder.assert_no_violations();
}

#[test]
fn an_operation_that_hung_until_its_process_was_killed() {
    let mut builder = valid_history();
    builder.begin(11, locking(&[3]), 1000);
    // Another thread continues.
    builder.lock(11, &[4], [11_000, 11_001, 11_002, 11_003]);
    builder.kill(11);
    builder.finds(&[(Hung, 1)]);
}

#[test]
fn a_history_of_its_first_line_only() {
    let mut builder = valid_history();
    let process = Record::Process {
        process: 11,
        worker: 1,
        pid: 7,
        at: at(1000),
    };
    builder.records.insert(11, vec![process]);
    builder.records.insert(12, Vec::new());
    builder.kill(11);
    builder.kill(12);
    builder.assert_no_violations();
}
