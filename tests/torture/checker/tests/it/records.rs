//! Histories that contradict themselves are no verdict.

use torture_history::{Client, Op, Outcome, Record, Row, SlotHeld, Task};

use crate::history_builder::{HistoryBuilder, at, leasing, locking};
use crate::valid_history::valid_history;

/// The check fails, and says why.
#[track_caller]
fn refuses(builder: &HistoryBuilder, why: &str) {
    let error = builder.verdict().expect_err("it contradicts itself");
    let text = format!("{error:#}");
    assert!(text.contains(why), "{text}");
}

#[test]
fn a_history_without_its_process() {
    let mut builder = valid_history();
    builder.records.get_mut(&1).unwrap().remove(0);
    refuses(&builder, "begins with");
}

#[test]
fn a_history_with_two_beginnings() {
    let mut builder = valid_history();
    let first = builder.records[&1][0].clone();
    builder.record(1, first);
    refuses(&builder, "a second beginning");
}

#[test]
fn two_histories_of_a_process() {
    let mut builder = valid_history();
    let first = builder.records[&1][0].clone();
    builder.records.insert(99, vec![first]);
    refuses(&builder, "two histories of process 1");
}

#[test]
fn an_operation_that_begins_twice() {
    let mut builder = valid_history();
    let began = builder.records[&1][1].clone();
    builder.record(1, began);
    refuses(&builder, "begins twice");
}

#[test]
fn an_operation_of_another_process() {
    let mut builder = valid_history();
    let (op, thread, task, at) = (Op::of(2, 999), 0, locking(&[0]), at(1000));
    builder.record(
        1,
        Record::Began {
            op,
            thread,
            client: Client::R2d2,
            task,
            at,
        },
    );
    refuses(&builder, "another process's");
}

#[test]
fn an_operation_that_did_not_begin() {
    let mut builder = valid_history();
    builder.enter(Op::of(1, 999), None, 1000);
    refuses(&builder, "has not begun");
}

#[test]
fn an_operation_that_goes_on_after_its_end() {
    let mut builder = valid_history();
    let op = builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    builder.enter(op, None, 1004);
    refuses(&builder, "has ended");
}

#[test]
fn a_process_that_goes_on_after_it_stopped() {
    let mut builder = valid_history();
    builder.record(1, Record::Stopped { at: at(1000) });
    refuses(&builder, "it had stopped");
}

#[test]
fn time_that_goes_back() {
    let mut builder = valid_history();
    builder.whole(
        1,
        locking(&[3]),
        None,
        Outcome::Done,
        [1000, 999, 1002, 1003],
    );
    refuses(&builder, "order of time");
}

#[test]
fn a_fault_that_ends_before_it_begins() {
    let mut builder = valid_history();
    builder.fault(torture_history::FaultKind::Hog, None, 1000, 999);
    refuses(&builder, "ends before it begins");
}

#[test]
fn held_until_after_the_end() {
    let mut builder = valid_history();
    let slot = Some((1, 300));
    builder.whole(
        1,
        leasing("leader"),
        slot,
        Outcome::Done,
        [1000, 1001, 1009, 1003],
    );
    refuses(&builder, "knew before its end");
}

#[test]
fn done_without_having_entered() {
    let mut builder = valid_history();
    let op = builder.begin(1, locking(&[3]), 1000);
    builder.end(op, Outcome::Done, None, 1003);
    refuses(&builder, "never entered");
}

#[test]
fn done_without_having_held() {
    let mut builder = valid_history();
    builder.whole(
        1,
        locking(&[3]),
        None,
        Outcome::Done,
        [1000, 1005, 1004, 1006],
    );
    refuses(&builder, "did not hold");
}

#[test]
fn a_lease_of_no_known_semaphore_or_without_a_slot() {
    let mut builder = valid_history();
    builder.begin(1, leasing("nobody's"), 1000);
    refuses(&builder, "nobody's");

    let mut builder = valid_history();
    let op = builder.begin(1, Task::Pinned { lease_ms: 7 }, 1000);
    builder.enter(op, None, 1001);
    refuses(&builder, "without a number");
    // As it is to be.
    let slot = Some(SlotHeld {
        other: None,
        number: 1,
        fence: 300,
        due_us: None,
    });
    let records = builder.records.get_mut(&1).unwrap();
    *records.last_mut().unwrap() = Record::Entered {
        op,
        slot,
        at: at(1001),
    };
    builder.kill(1);
    builder.assert_no_violations();
}

#[test]
fn renewed_before_it_was_requested() {
    for (requested, told) in [(1003, 1002), (999, 1002)] {
        let mut builder = valid_history();
        let op = builder.begin(1, leasing("leader"), 1000);
        builder.enter(op, Some((1, 300)), 1001);
        builder.renew(op, false, [requested, told]);
        refuses(&builder, "before it had asked");
    }
}

#[test]
fn ignored_fault_in_a_task_without_one() {
    for wrong in [
        HistoryBuilder::ignore_one,
        HistoryBuilder::write_one,
        HistoryBuilder::request_one,
    ] {
        let mut builder = valid_history();
        let op = builder.begin(1, locking(&[3]), 1000);
        wrong(&mut builder, op);
        refuses(&builder, "nothing was to go wrong");
    }
}

impl HistoryBuilder {
    fn ignore_one(&mut self, op: Op) {
        self.fault_ignored(op, true, 1001);
    }

    fn write_one(&mut self, op: Op) {
        self.wrote(op, Row::Step(1), 1001);
    }

    fn request_one(&mut self, op: Op) {
        self.requested(op, None, 1001);
    }
}

#[test]
fn two_operations_of_a_thread_at_the_same_time() {
    let began = |op, thread| Record::Began {
        op,
        thread,
        client: Client::R2d2,
        task: locking(&[3]),
        at: at(1000),
    };
    let (first, second) = (Op::of(1, 998), Op::of(1, 999));
    let ended = |builder: &mut HistoryBuilder, op| builder.end(op, Outcome::RolledBack, None, 1000);
    for (thread, is_sequential, is_valid) in [(7, false, false), (8, false, true), (7, true, true)]
    {
        let mut builder = valid_history();
        builder.record(1, began(first, 7));
        if is_sequential {
            ended(&mut builder, first);
        }
        builder.record(1, began(second, thread));
        if !is_sequential {
            ended(&mut builder, first);
        }
        ended(&mut builder, second);
        if is_valid {
            builder.assert_no_violations();
        } else {
            refuses(&builder, "at another operation");
        }
    }
}
