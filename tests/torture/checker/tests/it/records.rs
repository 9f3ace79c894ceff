//! Histories that contradict themselves are no verdict.

use torture_history::{Op, Outcome, Record, Row, SlotHeld, Task};

use crate::play::{Play, at, leasing, locking};
use crate::right::right;

/// The check fails, and says why.
#[track_caller]
fn refuses(play: &Play, why: &str) {
    let error = play.verdict().expect_err("it contradicts itself");
    let text = format!("{error:#}");
    assert!(text.contains(why), "{text}");
}

#[test]
fn a_history_without_its_process() {
    let mut play = right();
    play.records.get_mut(&1).unwrap().remove(0);
    refuses(&play, "begins with");
}

#[test]
fn a_history_with_two_beginnings() {
    let mut play = right();
    let first = play.records[&1][0].clone();
    play.record(1, first);
    refuses(&play, "a second beginning");
}

#[test]
fn two_histories_of_a_process() {
    let mut play = right();
    let first = play.records[&1][0].clone();
    play.records.insert(99, vec![first]);
    refuses(&play, "two histories of process 1");
}

#[test]
fn an_operation_that_begins_twice() {
    let mut play = right();
    let began = play.records[&1][1].clone();
    play.record(1, began);
    refuses(&play, "begins twice");
}

#[test]
fn an_operation_of_another_process() {
    let mut play = right();
    let (op, thread, task, at) = (Op::of(2, 999), 0, locking(&[0]), at(1000));
    play.record(
        1,
        Record::Began {
            op,
            thread,
            task,
            at,
        },
    );
    refuses(&play, "another process's");
}

#[test]
fn an_operation_that_did_not_begin() {
    let mut play = right();
    play.enter(Op::of(1, 999), None, 1000);
    refuses(&play, "has not begun");
}

#[test]
fn an_operation_that_goes_on_after_its_end() {
    let mut play = right();
    let op = play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    play.enter(op, None, 1004);
    refuses(&play, "has ended");
}

#[test]
fn a_process_that_goes_on_after_it_stopped() {
    let mut play = right();
    play.record(1, Record::Stopped { at: at(1000) });
    refuses(&play, "it had stopped");
}

#[test]
fn time_that_goes_back() {
    let mut play = right();
    play.whole(
        1,
        locking(&[3]),
        None,
        Outcome::Done,
        [1000, 999, 1002, 1003],
    );
    refuses(&play, "order of time");
}

#[test]
fn a_fault_that_ends_before_it_begins() {
    let mut play = right();
    play.fault(torture_history::FaultKind::Hog, None, 1000, 999);
    refuses(&play, "ends before it begins");
}

#[test]
fn one_that_knew_the_future() {
    let mut play = right();
    let slot = Some((1, 300));
    play.whole(
        1,
        leasing("leader"),
        slot,
        Outcome::Done,
        [1000, 1001, 1009, 1003],
    );
    refuses(&play, "knew before its end");
}

#[test]
fn one_that_is_done_and_never_entered() {
    let mut play = right();
    let op = play.begin(1, locking(&[3]), 1000);
    play.end(op, Outcome::Done, None, 1003);
    refuses(&play, "never entered");
}

#[test]
fn one_that_is_done_and_did_not_hold_what_it_entered_with() {
    let mut play = right();
    play.whole(
        1,
        locking(&[3]),
        None,
        Outcome::Done,
        [1000, 1005, 1004, 1006],
    );
    refuses(&play, "did not hold");
}

#[test]
fn a_lease_of_no_known_semaphore_or_without_a_slot() {
    let mut play = right();
    play.begin(1, leasing("nobody's"), 1000);
    refuses(&play, "nobody's");

    let mut play = right();
    let op = play.begin(1, Task::Ensured { lease_ms: 7 }, 1000);
    play.enter(op, None, 1001);
    refuses(&play, "without a number");
    // As it is to be.
    let slot = Some(SlotHeld {
        number: 1,
        fence: 300,
    });
    let records = play.records.get_mut(&1).unwrap();
    *records.last_mut().unwrap() = Record::Entered {
        op,
        slot,
        at: at(1001),
    };
    play.kill(1);
    play.is_right();
}

#[test]
fn one_that_refreshed_before_it_asked_to() {
    for (asked, told) in [(1003, 1002), (999, 1002)] {
        let mut play = right();
        let op = play.begin(1, leasing("leader"), 1000);
        play.enter(op, Some((1, 300)), 1001);
        play.refresh(op, false, [asked, told]);
        refuses(&play, "before it had asked");
    }
}

#[test]
fn one_in_which_nothing_was_to_go_wrong() {
    for wrong in [Play::swallow_one, Play::write_one, Play::ask_one] {
        let mut play = right();
        let op = play.begin(1, locking(&[3]), 1000);
        wrong(&mut play, op);
        refuses(&play, "nothing was to go wrong");
    }
}

impl Play {
    fn swallow_one(&mut self, op: Op) {
        self.swallowed(op, true, 1001);
    }

    fn write_one(&mut self, op: Op) {
        self.wrote(op, Row::Step(1), 1001);
    }

    fn ask_one(&mut self, op: Op) {
        self.asked(op, None, 1001);
    }
}

#[test]
fn a_thread_that_is_at_two_operations() {
    let began = |op, thread| Record::Began {
        op,
        thread,
        task: locking(&[3]),
        at: at(1000),
    };
    let (first, second) = (Op::of(1, 998), Op::of(1, 999));
    let ended = |play: &mut Play, op| play.end(op, Outcome::RolledBack, None, 1000);
    for (thread, one_after_the_other, is_right) in
        [(7, false, false), (8, false, true), (7, true, true)]
    {
        let mut play = right();
        play.record(1, began(first, 7));
        if one_after_the_other {
            ended(&mut play, first);
        }
        play.record(1, began(second, thread));
        if !one_after_the_other {
            ended(&mut play, first);
        }
        ended(&mut play, second);
        if is_right {
            play.is_right();
        } else {
            refuses(&play, "at another operation");
        }
    }
}
