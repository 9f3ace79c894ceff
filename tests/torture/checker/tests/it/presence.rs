//! What is in the database and what the workers were told.

use torture_checker::Violation::{GhostCommits, LostCommits};
use torture_checker::{LedgerRow, Visit};
use torture_history::{ErrorKind, FaultKind, Outcome, Task, Waiting, scene};

use crate::play::{failed, leasing, locking};
use crate::right::right;

#[test]
fn done_and_not_there() {
    let mut play = right();
    let times = [1000, 1001, 1002, 1003];
    play.whole(1, locking(&[3]), None, Outcome::Done, times);
    play.whole(1, leasing("leader"), Some((1, 300)), Outcome::Done, times);
    let wait = Waiting::Forever;
    play.whole(1, Task::Slot { wait }, None, Outcome::Done, times);
    let pass = play.begin(1, Task::Pass { sequence: 0 }, 1000);
    play.end(pass, Outcome::Done, None, 1003);
    play.whole(
        1,
        Task::Transfer { from: 100, to: 101 },
        None,
        Outcome::Done,
        times,
    );
    let ensured = Task::Ensured { lease_ms: 1000 };
    play.whole(1, ensured, Some((1, 300)), Outcome::Done, times);
    play.finds(&[(LostCommits, 6)]);
}

#[test]
fn a_part_of_a_transaction() {
    let mut play = right();
    let op = play.whole(
        1,
        locking(&[3, 4]),
        None,
        Outcome::Done,
        [1000, 1001, 1002, 1003],
    );
    play.count(op, &[3]);
    play.finds(&[(LostCommits, 1)]);
}

#[test]
fn a_part_of_a_transaction_whose_process_was_killed() {
    let mut play = right();
    let op = play.begin(11, Task::Transfer { from: 100, to: 101 }, 1000);
    play.count(op, &[101]);
    play.kill(11);
    play.finds(&[(LostCommits, 1)]);
}

#[test]
fn refused_and_there() {
    let mut play = right();
    let wait = Waiting::No;
    let (counters, kept) = (vec![3], true);
    let op = play.begin(
        1,
        Task::Lock {
            counters,
            kept,
            wait,
        },
        1000,
    );
    play.end(op, Outcome::Refused, None, 1003);
    play.count(op, &[3]);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_victim_of_a_deadlock_that_is_there() {
    let mut play = right();
    let op = play.begin(1, Task::Transfer { from: 100, to: 101 }, 1000);
    play.end(op, failed(ErrorKind::Deadlock), None, 1003);
    play.count(op, &[100, 101]);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_write_that_was_refused_for_its_fence_and_is_there() {
    let mut play = right();
    let (slot, stale) = ((1, 300), failed(ErrorKind::Fenced));
    let op = play.whole(
        1,
        leasing("leader"),
        Some(slot),
        stale,
        [1000, 1001, 1002, 2003],
    );
    play.write(op, "leader", slot);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_write_with_a_fence_that_was_not_granted() {
    let mut play = right();
    let slot = Some((1, 300));
    let op = play.whole(
        1,
        leasing("leader"),
        slot,
        Outcome::Done,
        [1000, 1001, 1002, 1003],
    );
    play.write(op, "leader", (1, 299));
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_row_that_nobody_set_out_to_write() {
    let mut play = right();
    let op = play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    play.count(op, &[4]);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_purge_that_wrote() {
    let mut play = right();
    let op = play.begin(1, Task::Purge, 1000);
    play.end(op, Outcome::Done, None, 1003);
    play.count(op, &[3]);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn a_row_at_another_slot_s_counter_says_nothing_of_that_slot() {
    let mut play = right();
    let op = play.begin(11, Task::Ensured { lease_ms: 1000 }, 1000);
    play.enter(op, Some((4, 350)), 1001);
    play.count(op, &[scene::ENSURED_COUNTERS.start]);
    play.kill(11);
    play.finds(&[(GhostCommits, 1)]);
}

#[test]
fn rows_of_operations_that_nobody_began() {
    let mut play = right();
    // Before all others, in between, and after them.
    let semaphore = "gate".to_owned();
    play.evidence.visits.push(Visit { op: 5, semaphore });
    let n = play.counter(3).n + 1;
    play.counter(3).n = n;
    let op = (2 << 32) + 999_999;
    play.evidence.ledger.push(LedgerRow { op, counter: 3, n });
    play.counter(4).n = 1;
    let op = i64::MAX;
    play.evidence.ledger.push(LedgerRow {
        op,
        counter: 4,
        n: 1,
    });
    play.finds(&[(GhostCommits, 3)]);
}

#[test]
fn an_operation_of_a_killed_process_before_it_entered() {
    let mut play = right();
    // Its slot is not known, so that it can't have written.
    let op = play.begin(11, leasing("leader"), 1000);
    play.write(op, "leader", (1, 300));
    play.kill(11);
    play.fault(FaultKind::Kill, Some(1), 1001, 1100);
    play.finds(&[(GhostCommits, 1)]);
}
