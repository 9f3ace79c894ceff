//! Transactions in which something went wrong and was swallowed, and those whose closures panicked.

use torture_checker::Violation::{
    GhostCommits, LeftLocks, LostCommits, OverlappingHolders, UnexpectedErrors, UnreportedLosses,
};
use torture_history::{ErrorKind, FaultKind, Form, Mishap, Outcome, Row, scene};

use crate::play::deeds::{BEFORE, GRANTED, OUTSIDE};
use crate::play::{failed, panicking};
use crate::right::right;

const AFTER: Row = Row::Step(scene::STEP_AFTER);

#[test]
fn a_transaction_that_was_gone_is_reported() {
    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::Deadlock, true, 1000);
    play.asked(op, Some(ErrorKind::Aborted), 1010);
    play.end(op, failed(ErrorKind::Aborted), None, 1020);
    play.is_right();
    // The statement after it was committed by itself, as on InnoDB.
    play.keep(op, &[AFTER]);
    play.is_right();
}

#[test]
fn a_transaction_that_was_gone_is_told_that_it_is_done() {
    for (mishap, is_lost) in [
        (Mishap::Deadlock, true),
        (Mishap::Commit, true),
        (Mishap::LeftOpen, false),
    ] {
        for rows in [&[][..], &BEFORE, &[AFTER]] {
            let mut play = right();
            let op = play.goes_wrong(1, Form::Locked, mishap, is_lost, 1000);
            play.end(op, Outcome::Done, Some(1010), 1020);
            play.keep(op, rows);
            play.finds(&[(UnreportedLosses, 1)]);
        }
    }
}

#[test]
fn something_is_granted_in_a_transaction_that_was_gone() {
    let mut play = right();
    let op = play.goes_wrong(1, Form::Diesel, Mishap::Rollback, true, 1000);
    play.asked(op, None, 1010);
    play.end(op, failed(ErrorKind::Aborted), None, 1020);
    play.finds(&[(UnreportedLosses, 1)]);
    // What it wrote with it was committed by itself.
    play.keep(op, &GRANTED);
    play.finds(&[(GhostCommits, 1), (UnreportedLosses, 1)]);
}

#[test]
fn something_is_granted_in_one_more_transaction() {
    for (form, mishap, is_right) in [
        (Form::Locked, Mishap::Commit, true),
        (Form::Transaction, Mishap::Rollback, true),
        (Form::Diesel, Mishap::Commit, false),
        (Form::Locked, Mishap::Deadlock, false),
    ] {
        let mut play = right();
        let op = play.goes_wrong(1, form, mishap, true, 1000);
        play.asked(op, None, 1010);
        play.end(op, failed(ErrorKind::Aborted), None, 1020);
        play.finds(&[(UnreportedLosses, 1)]);
        play.limits.one_more_transaction = true;
        if is_right {
            play.is_right();
            play.keep(op, &GRANTED[..1]);
            play.finds(&[(GhostCommits, 1)]);
        } else {
            play.finds(&[(UnreportedLosses, 1)]);
        }
    }
    let mut play = right();
    play.limits.one_more_transaction = true;
    let op = play.goes_wrong(1, Form::Locked, Mishap::Commit, true, 1000);
    play.asked(op, None, 1010);
    play.end(op, Outcome::Done, Some(1010), 1020);
    play.finds(&[(UnreportedLosses, 1)]);
}

#[test]
fn something_is_granted_before_the_transaction_was_gone() {
    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::Duplicate, false, 1000);
    play.asked(op, None, 1010);
    play.swallowed(op, true, 1011);
    play.asked(op, Some(ErrorKind::Aborted), 1012);
    play.end(op, failed(ErrorKind::Aborted), None, 1020);
    play.is_right();
}

#[test]
fn write_before_a_lost_transaction_is_present() {
    for row in BEFORE {
        let mut play = right();
        let op = play.goes_wrong(1, Form::Locked, Mishap::Deadlock, true, 1000);
        play.end(op, Outcome::RolledBack, None, 1020);
        play.keep(op, &[row]);
        play.finds(&[(GhostCommits, 1)]);
    }
}

#[test]
fn write_committed_by_the_closure_is_present() {
    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::Commit, true, 1000);
    play.end(op, failed(ErrorKind::Aborted), None, 1020);
    play.keep(op, &BEFORE);
    play.is_right();
    play.keep(op, &[AFTER]);
    play.is_right();
}

#[test]
fn a_transaction_that_was_left_open_leaves_nothing() {
    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::LeftOpen, false, 1000);
    play.asked(op, None, 1010);
    play.end(op, failed(ErrorKind::Aborted), None, 1020);
    play.is_right();
    play.keep(op, &[AFTER]);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_transaction_that_went_on_is_there_in_full_or_not_at_all() {
    let rows = [&BEFORE[..], &[AFTER]].concat();
    for missing in 0..rows.len() {
        let mut play = right();
        let op = play.goes_wrong(1, Form::Locked, Mishap::Duplicate, false, 1000);
        play.end(op, Outcome::Done, Some(1010), 1020);
        let mut some = rows.clone();
        some.remove(missing);
        play.keep(op, &some);
        play.finds(&[(LostCommits, 1)]);
    }
    for there in [&rows[..], &[]] {
        let mut play = right();
        let op = play.goes_wrong(11, Form::Locked, Mishap::Duplicate, false, 1000);
        play.kill(11);
        play.keep(op, there);
        play.is_right();
    }
    let mut play = right();
    let op = play.goes_wrong(11, Form::Locked, Mishap::Duplicate, false, 1000);
    play.kill(11);
    play.keep(op, &[AFTER]);
    play.finds(&[(LostCommits, 1)]);
    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::Duplicate, false, 1000);
    play.end(op, Outcome::RolledBack, None, 1020);
    play.keep(op, &rows);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_transaction_that_went_on_is_told_that_it_was_gone() {
    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::Duplicate, false, 1000);
    play.end(op, failed(ErrorKind::Aborted), None, 1020);
    play.finds(&[(UnexpectedErrors, 1)]);

    let mut play = right();
    let op = play.goes_wrong(1, Form::Locked, Mishap::Duplicate, false, 1000);
    play.asked(op, Some(ErrorKind::Aborted), 1010);
    play.end(op, Outcome::RolledBack, None, 1020);
    play.finds(&[(UnexpectedErrors, 1)]);
}

#[test]
fn two_hold_a_lock_in_which_something_went_wrong() {
    let mut play = right();
    play.survives(1, 1000);
    play.survives(2, 1004);
    play.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn write_before_a_panic_is_present() {
    let mut play = right();
    let op = play.panics(1, 1000);
    play.keep(op, &[Row::Counter(scene::SPOILED_COUNTERS.start + 2)]);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn write_after_a_panic_is_absent() {
    let mut play = right();
    play.panics_and(1, None, 1000);
    play.finds(&[(LostCommits, 1)]);
}

#[test]
fn write_after_a_panic_of_a_killed_process_may_be_present() {
    for is_there in [true, false] {
        let mut play = right();
        let op = play.begin(11, panicking(), 1000);
        play.enter(op, None, 1001);
        play.kill(11);
        if is_there {
            play.keep(op, &[OUTSIDE]);
        }
        play.is_right();
    }
}

#[test]
fn the_lock_of_a_closure_that_panicked_is_not_free() {
    let refused = Some(ErrorKind::TimedOut);
    let left = [(LeftLocks, 1)];
    for (fault, worker, finds) in [
        (None, None, &left[..]),
        (Some(FaultKind::Reset), Some(1), &[]),
        (Some(FaultKind::Hog), None, &[]),
        (Some(FaultKind::Reset), Some(2), &left),
        (Some(FaultKind::Snapshot), None, &left),
    ] {
        let mut play = right();
        let op = play.panics_and(1, refused, 1000);
        play.keep(op, &[OUTSIDE]);
        if let Some(fault) = fault {
            play.fault(fault, worker, 1001, 1002);
        }
        play.finds(finds);
    }
}
