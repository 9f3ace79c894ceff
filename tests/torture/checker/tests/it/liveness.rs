//! Whether anything was done.

use torture_checker::SlotUse;
use torture_checker::Violation::NothingDone;
use torture_history::{
    Client, ErrorKind, InjectedFault, Outcome, Record, Task, TransactionMethod, WaitLimit,
    workload_spec,
};

use crate::history_builder::{HistoryBuilder, at, failed, leasing};
use crate::valid_history::valid_history;

/// Somebody is at it again at this moment.
fn goes_on(builder: &mut HistoryBuilder, ms: u64) {
    refused(builder, &leasing("leader"), 1, ms);
}

/// So many operations that are refused.
fn refused(builder: &mut HistoryBuilder, task: &Task, times: usize, ms: u64) {
    for _ in 0..times {
        let op = builder.begin(1, task.clone(), ms);
        builder.end(op, Outcome::Refused, None, ms + 1);
    }
}

#[test]
fn a_long_run_with_something_of_everything() {
    let mut builder = valid_history();
    goes_on(&mut builder, 10_010);
    builder.assert_no_violations();
}

#[test]
fn a_long_run_in_which_nothing_was_done() {
    let mut builder = HistoryBuilder::new();
    refused(&mut builder, &leasing("leader"), 9, 10);
    goes_on(&mut builder, 10_009);
    builder.assert_no_violations();
    goes_on(&mut builder, 10_010);
    builder.finds(&[(NothingDone, 1)]);
    // Of the other kinds too few were begun until now.
    refused(&mut builder, &leasing("leader"), 19_988, 10_010);
    builder.finds(&[(NothingDone, 1)]);
    goes_on(&mut builder, 10_010);
    builder.finds(&[(NothingDone, 17)]);
}

#[test]
fn a_kind_of_task_that_always_failed() {
    let mut builder = valid_history();
    let users: Vec<i64> = builder
        .evidence
        .slot_uses
        .drain(..)
        .map(|slot_use| slot_use.op)
        .collect();
    for record in builder.records.values_mut().flatten() {
        if let Record::Ended { op, outcome, .. } = record
            && users.contains(&op.0)
        {
            *outcome = Outcome::RolledBack;
        }
    }
    builder.assert_no_violations();
    goes_on(&mut builder, 10_010);
    let wait = WaitLimit::No;
    refused(&mut builder, &Task::Slot { permits: 1, wait }, 5, 10_010);
    builder.assert_no_violations();
    refused(&mut builder, &Task::Slot { permits: 1, wait }, 1, 10_010);
    builder.finds(&[(NothingDone, 1)]);
    let told = builder.verdict().unwrap().to_string();
    assert!(told.contains("slot: 10 were begun"), "{told}");
    let late = builder.begin(
        2,
        Task::Slot {
            permits: 1,
            wait: WaitLimit::AtMost(5),
        },
        10_010,
    );
    builder.end(late, failed(ErrorKind::TimedOut), None, 10_016);
    builder.finds(&[(NothingDone, 1)]);
    builder.slot(3, [10_010, 10_011, 10_012, 10_013]);
    builder.assert_no_violations();
}

#[test]
fn injected_faults_that_all_abort_their_transactions() {
    let mut builder = HistoryBuilder::new();
    for number in 0..10 {
        let ms = 10 + 100 * number;
        let method = TransactionMethod::Locked;
        let op = builder.goes_wrong(1, method, InjectedFault::Deadlock, true, ms);
        builder.end(op, failed(ErrorKind::Aborted), None, ms + 20);
    }
    goes_on(&mut builder, 10_010);
    builder.assert_no_violations();
}

#[test]
fn shared_locks_that_exclude_each_other() {
    let mut builder = HistoryBuilder::new();
    for number in 0..49 {
        builder.share(1, &[], &[1], [10 + 5 * number; 4]);
    }
    goes_on(&mut builder, 10_010);
    builder.assert_no_violations();
    builder.share(2, &[2], &[1], [10_010; 4]);
    builder.finds(&[(NothingDone, 1)]);
    builder.limits.several_writers = true;
    builder.assert_no_violations();
    builder.limits.several_writers = false;
    builder.evidence.has_server = false;
    builder.assert_no_violations();
    builder.evidence.has_server = true;
    builder.share(3, &[], &[1], [20, 21, 27, 28]);
    builder.assert_no_violations();
}

/// A slot of a transaction, with a client.
fn slot_of(builder: &mut HistoryBuilder, client: Client, ms: u64) {
    let wait = WaitLimit::Forever;
    let op = builder.begin_with(client, 1, Task::Slot { permits: 1, wait }, ms);
    builder.enter(op, None, ms);
    builder.end(op, Outcome::Done, Some(ms), ms);
    builder.evidence.slot_uses.push(SlotUse {
        op: op.0,
        semaphore: workload_spec::HELD_BY_TRANSACTIONS.name.to_owned(),
    });
}

#[test]
fn a_client_that_did_nothing() {
    let mut builder = valid_history();
    goes_on(&mut builder, 10_010);
    builder.limits.asynchronous = true;
    // Of the lock pools, no request has waited either.
    builder.finds(&[(NothingDone, 6)]);
    let told = builder.verdict().unwrap().to_string();
    assert!(told.contains("bb8: 0 were begun"), "{told}");
    for (number, client) in (0..).zip(Client::ASYNCHRONOUS) {
        slot_of(&mut builder, client, 1000 + number);
    }
    builder.finds(&[(NothingDone, 2)]);
    let told = builder.verdict().unwrap().to_string();
    let expected = "bb8, lock pool: no request has waited without a connection";
    assert!(told.contains(expected), "{told}");
    for client in [Client::Bb8LockPool, Client::DeadpoolLockPool] {
        let op = builder.begin_with(client, 1, leasing("leader"), 2000);
        builder.record(1, Record::Queued { op, at: at(2000) });
        builder.end(op, Outcome::Refused, None, 2001);
    }
    builder.assert_no_violations();
}
