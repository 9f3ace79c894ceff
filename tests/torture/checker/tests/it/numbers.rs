//! Counters, sequences, and their order in time.

use torture_checker::Violation::{Disorder, LostUpdates, SequenceGaps, SequenceRepeats};
use torture_history::{Outcome, Task};

use crate::right::right;

#[test]
fn two_updates_to_the_same_number() {
    let mut play = right();
    play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = play.lock(2, &[3], [1010, 1011, 1012, 1013]);
    play.ledger(second, 3).n = 1;
    play.counter(3).n = 1;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn equal_numbers_have_no_order() {
    let mut play = right();
    // Whichever of them has the smaller number as an operation.
    play.lock(2, &[3], [1000, 1001, 1002, 1003]);
    let second = play.lock(1, &[3], [1010, 1011, 1012, 1013]);
    play.ledger(second, 3).n = 1;
    play.counter(3).n = 1;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_number_that_was_never_set() {
    let mut play = right();
    play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = play.lock(2, &[3], [1010, 1011, 1012, 1013]);
    play.ledger(second, 3).n = 3;
    play.counter(3).n = 3;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_number_below_one() {
    let mut play = right();
    let only = play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    play.ledger(only, 3).n = 0;
    play.counter(3).n = 0;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_counter_that_nobody_set_so() {
    let mut play = right();
    play.counter(3).n += 1;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_counter_that_is_not_there() {
    let mut play = right();
    play.evidence.counters.retain(|counter| counter.id != 0);
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn money_from_nowhere() {
    let mut play = right();
    play.counter(102).balance += 1;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn two_writes_of_the_same_version() {
    let mut play = right();
    play.lease(1, "leader", (1, 300), [1000, 1001, 1002, 1003]);
    play.evidence.writes.last_mut().unwrap().version -= 1;
    play.resource("leader", 1).version -= 1;
    play.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_larger_number_before_a_smaller_one() {
    let mut play = right();
    let first = play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = play.lock(2, &[3], [1010, 1011, 1012, 1013]);
    play.ledger(first, 3).n = 2;
    play.ledger(second, 3).n = 1;
    play.finds(&[(Disorder, 1)]);
}

#[test]
fn a_number_of_a_sequence_that_came_too_late() {
    let mut play = right();
    for begin in [1000, 1010, 1020] {
        play.pass(1, 2, begin, begin + 5);
    }
    let [.., first, _, last] = play.evidence.passes.as_mut_slice() else {
        panic!("there are passes");
    };
    std::mem::swap(&mut first.number, &mut last.number);
    // 3 before 2 and 1, 2 before 1: the last two are late.
    play.finds(&[(Disorder, 2)]);
}

#[test]
fn long_draw_in_between_hides_no_gap() {
    let mut play = right();
    let late = play.begin(1, Task::Pass { sequence: 2 }, 1010);
    play.draw(late, 2);
    play.end(late, Outcome::Done, None, 1015);
    play.pass(2, 2, 1000, 1100);
    play.pass(3, 2, 1000, 1003);
    play.finds(&[(Disorder, 1)]);
}

#[test]
fn numbers_of_two_at_the_same_time_may_be_in_any_order() {
    let mut play = right();
    play.pass(1, 2, 1000, 1010);
    play.pass(2, 2, 1010, 1020);
    let [.., first, last] = play.evidence.passes.as_mut_slice() else {
        panic!("there are passes");
    };
    std::mem::swap(&mut first.number, &mut last.number);
    play.is_right();
}

#[test]
fn a_number_that_nobody_has() {
    let mut play = right();
    play.pass(1, 2, 1000, 1005);
    play.sequence(2).last += 3;
    play.pass(2, 2, 1010, 1015);
    play.finds(&[(SequenceGaps, 3)]);
}

#[test]
fn a_number_of_a_sequence_below_one() {
    let mut play = right();
    play.sequence(2).last = -1;
    play.pass(1, 2, 1000, 1005);
    assert_eq!(play.evidence.passes.last().unwrap().number, 0);
    play.finds(&[(SequenceGaps, 1)]);
}

#[test]
fn the_last_number_was_lost() {
    let mut play = right();
    play.sequence(1).last += 1;
    play.finds(&[(SequenceGaps, 1)]);
}

#[test]
fn a_sequence_that_was_drawn_from_and_has_no_pass() {
    let mut play = right();
    play.sequence(2).last = 2;
    play.finds(&[(SequenceGaps, 2)]);
}

#[test]
fn a_number_that_two_have() {
    let mut play = right();
    play.pass(1, 2, 1000, 1005);
    play.sequence(2).last -= 1;
    play.pass(2, 2, 1010, 1015);
    play.finds(&[(SequenceRepeats, 1)]);
}

#[test]
fn a_sequence_that_went_back() {
    let mut play = right();
    play.sequence(1).last -= 1;
    play.finds(&[(SequenceRepeats, 1)]);
}

#[test]
fn a_sequence_that_is_gone() {
    let mut play = right();
    play.evidence.sequences.retain(|row| row.scope != "1");
    play.finds(&[(SequenceRepeats, 1)]);
}

#[test]
fn sequences_of_others_are_not_looked_at() {
    let mut play = right();
    play.sequence(7).name = "invoice".to_owned();
    play.evidence.sequences.last_mut().unwrap().last = 7;
    play.is_right();
}

#[test]
fn where_updates_were_lost_the_order_says_nothing() {
    let mut play = right();
    let first = play.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = play.lock(2, &[3], [1010, 1011, 1012, 1013]);
    let third = play.lock(1, &[3], [1020, 1021, 1022, 1023]);
    for (op, n) in [(first, 2), (second, 1), (third, 1)] {
        play.ledger(op, 3).n = n;
    }
    play.counter(3).n = 2;
    play.finds(&[(LostUpdates, 1)]);
}
