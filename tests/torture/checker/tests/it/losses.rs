//! Transactions with an ignored fault, and transactions whose closures panicked.

use torture_checker::Violation::{
    GhostCommits, LeftLocks, LostCommits, OverlappingHolders, UnexpectedErrors, UnreportedLosses,
};
use torture_history::{
    Client, ErrorKind, FaultKind, InjectedFault, Op, Outcome, Row, TransactionMethod, workload_spec,
};

use crate::history_builder::operations::{BEFORE, GRANTED, OUTSIDE};
use crate::history_builder::{HistoryBuilder, failed, locking, panicking};
use crate::valid_history::valid_history;

const AFTER: Row = Row::Step(workload_spec::STEP_AFTER);

/// An operation that locks an object, and ignores this fault in its transaction.
fn ignoring(
    builder: &mut HistoryBuilder,
    process: u32,
    injected: InjectedFault,
    is_lost: bool,
) -> Op {
    builder.goes_wrong(process, TransactionMethod::Locked, injected, is_lost, 1000)
}

#[test]
fn a_lost_transaction_that_is_reported_as_lost() {
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::Deadlock, true);
    builder.requested(op, Some(ErrorKind::Aborted), 1010);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.assert_no_violations();
    // The statement after it was committed by itself, as on InnoDB.
    builder.keep(op, &[AFTER]);
    builder.assert_no_violations();
}

#[test]
fn serialization_failures_after_the_end_of_the_transaction() {
    for is_lost in [true, false] {
        let mut builder = valid_history();
        let op = ignoring(&mut builder, 1, InjectedFault::Rollback, is_lost);
        builder.requested(op, Some(ErrorKind::Serialization), 1010);
        builder.end(op, failed(ErrorKind::Aborted), None, 1020);
        if is_lost {
            builder.assert_no_violations();
        } else {
            builder.finds(&[(UnexpectedErrors, 2)]);
        }
    }
}

#[test]
fn a_lost_transaction_that_is_reported_as_done() {
    for (injected, is_lost) in [
        (InjectedFault::Deadlock, true),
        (InjectedFault::Commit, true),
        (InjectedFault::LeftOpen, false),
    ] {
        for rows in [&[][..], &BEFORE, &[AFTER]] {
            let mut builder = valid_history();
            let op = ignoring(&mut builder, 1, injected, is_lost);
            builder.end(op, Outcome::Done, Some(1010), 1020);
            builder.keep(op, rows);
            builder.finds(&[(UnreportedLosses, 1)]);
        }
    }
}

#[test]
fn a_grant_in_a_lost_transaction() {
    let mut builder = valid_history();
    let op = builder.goes_wrong(
        1,
        TransactionMethod::Diesel,
        InjectedFault::Rollback,
        true,
        1000,
    );
    builder.requested(op, None, 1010);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.finds(&[(UnreportedLosses, 1)]);
    // What it wrote with it was committed by itself.
    builder.keep(op, &GRANTED);
    builder.finds(&[(GhostCommits, 1), (UnreportedLosses, 1)]);
}

#[test]
fn a_grant_in_one_more_transaction() {
    for (method, injected, is_valid) in [
        (TransactionMethod::Locked, InjectedFault::Commit, true),
        (
            TransactionMethod::Transaction,
            InjectedFault::Rollback,
            true,
        ),
        (TransactionMethod::Diesel, InjectedFault::Commit, false),
        (TransactionMethod::Locked, InjectedFault::Deadlock, false),
    ] {
        let mut builder = valid_history();
        let op = builder.goes_wrong(1, method, injected, true, 1000);
        builder.requested(op, None, 1010);
        builder.end(op, failed(ErrorKind::Aborted), None, 1020);
        builder.finds(&[(UnreportedLosses, 1)]);
        builder.limits.one_more_transaction = true;
        if is_valid {
            builder.assert_no_violations();
            builder.keep(op, &GRANTED[..1]);
            builder.finds(&[(GhostCommits, 1)]);
        } else {
            builder.finds(&[(UnreportedLosses, 1)]);
        }
    }
    let mut builder = valid_history();
    builder.limits.one_more_transaction = true;
    let op = ignoring(&mut builder, 1, InjectedFault::Commit, true);
    builder.requested(op, None, 1010);
    builder.end(op, Outcome::Done, Some(1010), 1020);
    builder.finds(&[(UnreportedLosses, 1)]);
}

#[test]
fn where_several_nodes_write_a_grant_after_a_loss_is_rolled_back() {
    let mut builder = valid_history();
    let (method, injected) = (TransactionMethod::Locked, InjectedFault::Deadlock);
    let op = builder.goes_wrong(1, method, injected, true, 1000);
    builder.requested(op, None, 1010);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.finds(&[(UnreportedLosses, 1)]);
    builder.limits.several_writers = true;
    builder.assert_no_violations();
    builder.keep(op, &GRANTED[..1]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_grant_before_the_transaction_was_lost() {
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::Duplicate, false);
    builder.requested(op, None, 1010);
    builder.fault_ignored(op, true, 1011);
    builder.requested(op, Some(ErrorKind::Aborted), 1012);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.assert_no_violations();
}

#[test]
fn write_before_a_lost_transaction_is_present() {
    for row in BEFORE {
        let mut builder = valid_history();
        let op = ignoring(&mut builder, 1, InjectedFault::Deadlock, true);
        builder.end(op, Outcome::RolledBack, None, 1020);
        builder.keep(op, &[row]);
        builder.finds(&[(GhostCommits, 1)]);
    }
}

#[test]
fn write_committed_by_the_closure_is_present() {
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::Commit, true);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.keep(op, &BEFORE);
    builder.assert_no_violations();
    builder.keep(op, &[AFTER]);
    builder.assert_no_violations();
}

#[test]
fn a_transaction_that_was_left_open_leaves_nothing() {
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::LeftOpen, false);
    builder.requested(op, None, 1010);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.assert_no_violations();
    builder.keep(op, &[AFTER]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_transaction_that_went_on_is_there_in_full_or_not_at_all() {
    let rows = [&BEFORE[..], &[AFTER]].concat();
    for missing in 0..rows.len() {
        let mut builder = valid_history();
        let op = ignoring(&mut builder, 1, InjectedFault::Duplicate, false);
        builder.end(op, Outcome::Done, Some(1010), 1020);
        let mut some = rows.clone();
        some.remove(missing);
        builder.keep(op, &some);
        builder.finds(&[(LostCommits, 1)]);
    }
    for there in [&rows[..], &[]] {
        let mut builder = valid_history();
        let op = ignoring(&mut builder, 11, InjectedFault::Duplicate, false);
        builder.kill(11);
        builder.keep(op, there);
        builder.assert_no_violations();
    }
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 11, InjectedFault::Duplicate, false);
    builder.kill(11);
    builder.keep(op, &[AFTER]);
    builder.finds(&[(LostCommits, 1)]);
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::Duplicate, false);
    builder.end(op, Outcome::RolledBack, None, 1020);
    builder.keep(op, &rows);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_transaction_that_went_on_is_told_that_it_was_gone() {
    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::Duplicate, false);
    builder.end(op, failed(ErrorKind::Aborted), None, 1020);
    builder.finds(&[(UnexpectedErrors, 1)]);

    let mut builder = valid_history();
    let op = ignoring(&mut builder, 1, InjectedFault::Duplicate, false);
    builder.requested(op, Some(ErrorKind::Aborted), 1010);
    builder.end(op, Outcome::RolledBack, None, 1020);
    builder.finds(&[(UnexpectedErrors, 1)]);
}

#[test]
fn overlapping_holders_with_an_injected_fault() {
    let mut builder = valid_history();
    builder.survives(1, 1000);
    builder.survives(2, 1004);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn write_before_a_panic_is_present() {
    let mut builder = valid_history();
    let op = builder.panics(1, 1000);
    builder.keep(op, &[Row::Counter(workload_spec::FAULT_COUNTERS.start + 2)]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn write_after_a_panic_is_absent() {
    let mut builder = valid_history();
    builder.panics_and(1, None, 1000);
    builder.finds(&[(LostCommits, 1)]);
}

#[test]
fn write_after_a_panic_of_a_killed_process_may_be_present() {
    for is_there in [true, false] {
        let mut builder = valid_history();
        let op = builder.begin(11, panicking(), 1000);
        builder.enter(op, None, 1001);
        builder.kill(11);
        if is_there {
            builder.keep(op, &[OUTSIDE]);
        }
        builder.assert_no_violations();
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
        let mut builder = valid_history();
        let op = builder.panics_and(1, refused, 1000);
        builder.keep(op, &[OUTSIDE]);
        if let Some(fault) = fault {
            builder.fault(fault, worker, 1001, 1002);
        }
        builder.finds(finds);
    }
}

/// The future of an operation that locks an object is dropped in its closure.
fn dropping(builder: &mut HistoryBuilder, refused: Option<ErrorKind>) -> Op {
    let op = builder.begin(1, locking(&[1]), 1000);
    builder.enter(op, None, 1010);
    builder.requested(op, refused, 1030);
    builder.end(op, failed(ErrorKind::Dropped), Some(1010), 1040);
    op
}

#[test]
fn a_dropped_future_is_committed_or_not() {
    let mut builder = valid_history();
    let op = dropping(&mut builder, None);
    builder.assert_no_violations();
    builder.count(op, &[1]);
    builder.assert_no_violations();
    let mut builder = valid_history();
    let op = builder.begin(1, locking(&[1, 2]), 1000);
    builder.enter(op, None, 1010);
    builder.end(op, failed(ErrorKind::Dropped), Some(1020), 1040);
    builder.count(op, &[1]);
    builder.finds(&[(LostCommits, 1)]);
}

#[test]
fn a_lock_that_outlives_a_dropped_future() {
    let mut builder = valid_history();
    dropping(&mut builder, Some(ErrorKind::TimedOut));
    builder.finds(&[(LeftLocks, 1)]);
    // A server notices later that a client is gone.
    builder.fault(FaultKind::BlackHole, Some(1), 900, 1020);
    builder.assert_no_violations();
}

#[test]
fn an_error_after_a_dropped_future() {
    let mut builder = valid_history();
    dropping(&mut builder, Some(ErrorKind::Other));
    builder.finds(&[(UnexpectedErrors, 1)]);
}

#[test]
fn a_transaction_that_outlives_a_dropped_future() {
    let mut builder = valid_history();
    let op = builder.begin(1, locking(&[1]), 1000);
    builder.wrote(op, OUTSIDE, 1020);
    builder.end(op, failed(ErrorKind::Dropped), None, 1040);
    builder.finds(&[(LostCommits, 1)]);
    builder.keep(op, &[OUTSIDE]);
    builder.assert_no_violations();
}

#[test]
fn a_process_that_is_killed_after_a_drop() {
    let mut builder = valid_history();
    let op = builder.begin_with(Client::Bb8LockPool, 11, locking(&[1]), 1000);
    builder.kill(11);
    builder.requested(op, None, 1010);
    builder.assert_no_violations();
    for (client, finds) in [
        (Client::Bb8LockPool, &[][..]),
        // Blocking operations can't be dropped.
        (Client::R2d2, &[(GhostCommits, 1)]),
    ] {
        let mut builder = valid_history();
        let op = builder.begin_with(client, 11, locking(&[1]), 1000);
        builder.kill(11);
        builder.keep(op, &[OUTSIDE]);
        builder.finds(finds);
    }
}
