//! What is in the database, and what was reported to the workers.

use torture_checker::Violation::{GhostCommits, LostCommits};
use torture_checker::{LedgerRow, SlotUse};
use torture_history::{
    ErrorKind, FaultKind, InjectedFault, Outcome, Task, TransactionMethod, WaitLimit, workload_spec,
};

use crate::history_builder::operations::BEFORE;
use crate::history_builder::{failed, ignoring_fault, leasing, locking, locking_within};
use crate::valid_history::valid_history;

#[test]
fn done_and_not_there() {
    let mut builder = valid_history();
    let times = [1000, 1001, 1002, 1003];
    builder.whole(1, locking(&[3]), None, Outcome::Done, times);
    builder.whole(1, leasing("leader"), Some((1, 300)), Outcome::Done, times);
    let wait = WaitLimit::Forever;
    builder.whole(
        1,
        Task::Slot { permits: 1, wait },
        None,
        Outcome::Done,
        times,
    );
    let pass = builder.begin(1, Task::Pass { sequence: 0 }, 1000);
    builder.end(pass, Outcome::Done, None, 1003);
    builder.whole(
        1,
        Task::Transfer { from: 100, to: 101 },
        None,
        Outcome::Done,
        times,
    );
    let pinned = Task::Pinned { lease_ms: 1000 };
    builder.whole(1, pinned, Some((1, 300)), Outcome::Done, times);
    builder.finds(&[(LostCommits, 6)]);
}

#[test]
fn a_part_of_a_transaction() {
    let mut builder = valid_history();
    let op = builder.whole(
        1,
        locking(&[3, 4]),
        None,
        Outcome::Done,
        [1000, 1001, 1002, 1003],
    );
    builder.count(op, &[3]);
    builder.finds(&[(LostCommits, 1)]);
}

#[test]
fn a_part_of_a_transaction_whose_process_was_killed() {
    let mut builder = valid_history();
    let op = builder.begin(11, Task::Transfer { from: 100, to: 101 }, 1000);
    builder.count(op, &[101]);
    builder.kill(11);
    builder.finds(&[(LostCommits, 1)]);
}

#[test]
fn refused_and_there() {
    let mut builder = valid_history();
    let op = builder.begin(1, locking_within(WaitLimit::No), 1000);
    builder.end(op, Outcome::Refused, None, 1003);
    builder.count(op, &[1]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_victim_of_a_deadlock_that_is_there() {
    let mut builder = valid_history();
    let op = builder.begin(1, Task::Transfer { from: 100, to: 101 }, 1000);
    builder.end(op, failed(ErrorKind::Deadlock), None, 1003);
    builder.count(op, &[100, 101]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_connection_that_was_lost_before_commit_and_is_there() {
    for kind in [ErrorKind::Connection, ErrorKind::Pool] {
        let mut builder = valid_history();
        builder.fault(FaultKind::Reset, None, 1000, 1001);
        let times = [1000, 1001, 1002, 1003];
        let op = builder.whole(1, locking(&[3]), None, failed(kind), times);
        builder.count(op, &[3]);
        builder.finds(&[(GhostCommits, 1)]);
    }
}

#[test]
fn diesel_does_not_say_when_a_connection_was_lost() {
    for (method, found) in [
        (TransactionMethod::Diesel, &[][..]),
        (TransactionMethod::Transaction, &[(GhostCommits, 1)]),
    ] {
        let mut builder = valid_history();
        builder.fault(FaultKind::Reset, None, 1000, 1001);
        let op = builder.begin(1, ignoring_fault(method, InjectedFault::Duplicate), 1000);
        builder.enter(op, None, 1001);
        for row in BEFORE {
            builder.wrote(op, row, 1002);
        }
        builder.end(op, failed(ErrorKind::Connection), Some(1002), 1003);
        builder.keep(op, &BEFORE);
        builder.finds(found);
    }
}

#[test]
fn a_write_that_was_refused_for_its_fence_and_is_there() {
    let mut builder = valid_history();
    let (slot, stale) = ((1, 300), failed(ErrorKind::Fenced));
    let op = builder.whole(
        1,
        leasing("leader"),
        Some(slot),
        stale,
        [1000, 1001, 1002, 2003],
    );
    builder.write(op, "leader", slot);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_write_with_a_fence_that_was_not_granted() {
    let mut builder = valid_history();
    let slot = Some((1, 300));
    let op = builder.whole(
        1,
        leasing("leader"),
        slot,
        Outcome::Done,
        [1000, 1001, 1002, 1003],
    );
    builder.write(op, "leader", (1, 299));
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_row_that_the_operation_was_not_to_write() {
    let mut builder = valid_history();
    let op = builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    builder.count(op, &[4]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_purge_that_wrote() {
    let mut builder = valid_history();
    let op = builder.begin(1, Task::Purge, 1000);
    builder.end(op, Outcome::Done, None, 1003);
    builder.count(op, &[3]);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_row_at_the_counter_of_another_slot_is_no_evidence() {
    let mut builder = valid_history();
    let op = builder.begin(11, Task::Pinned { lease_ms: 1000 }, 1000);
    builder.enter(op, Some((4, 350)), 1001);
    builder.count(op, &[workload_spec::PINNED_COUNTERS.start]);
    builder.kill(11);
    builder.finds(&[(GhostCommits, 1)]);
}

#[test]
fn rows_of_operations_that_never_began() {
    let mut builder = valid_history();
    // Before all others, in between, and after them.
    let semaphore = "gate".to_owned();
    builder
        .evidence
        .slot_uses
        .push(SlotUse { op: 5, semaphore });
    let n = builder.counter(3).n + 1;
    builder.counter(3).n = n;
    let op = (2 << 32) + 999_999;
    builder
        .evidence
        .ledger
        .push(LedgerRow { op, counter: 3, n });
    builder.counter(4).n = 1;
    let op = i64::MAX;
    builder.evidence.ledger.push(LedgerRow {
        op,
        counter: 4,
        n: 1,
    });
    builder.finds(&[(GhostCommits, 3)]);
}

#[test]
fn an_operation_of_a_killed_process_before_it_entered() {
    let mut builder = valid_history();
    // Its slot is not known, so that it can't have written.
    let op = builder.begin(11, leasing("leader"), 1000);
    builder.write(op, "leader", (1, 300));
    builder.kill(11);
    builder.fault(FaultKind::Kill, Some(1), 1001, 1100);
    builder.finds(&[(GhostCommits, 1)]);
}
