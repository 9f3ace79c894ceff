//! Counters, sequences, and their order in time.

use torture_checker::Violation::{
    Disorder, LostCommits, LostUpdates, SequenceGaps, SequenceRepeats,
};
use torture_history::{Outcome, Task};

use crate::valid_history::valid_history;

#[test]
fn two_updates_to_the_same_number() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = builder.lock(2, &[3], [1010, 1011, 1012, 1013]);
    builder.ledger(second, 3).n = 1;
    builder.counter(3).n = 1;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn equal_numbers_have_no_order() {
    let mut builder = valid_history();
    // Whichever of them has the smaller number as an operation.
    builder.lock(2, &[3], [1000, 1001, 1002, 1003]);
    let second = builder.lock(1, &[3], [1010, 1011, 1012, 1013]);
    builder.ledger(second, 3).n = 1;
    builder.counter(3).n = 1;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_number_that_was_never_set() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = builder.lock(2, &[3], [1010, 1011, 1012, 1013]);
    builder.ledger(second, 3).n = 3;
    builder.counter(3).n = 3;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_number_below_one() {
    let mut builder = valid_history();
    let only = builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    builder.ledger(only, 3).n = 0;
    builder.counter(3).n = 0;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_counter_with_a_value_that_no_operation_wrote() {
    let mut builder = valid_history();
    builder.counter(3).n += 1;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_counter_that_is_not_there() {
    let mut builder = valid_history();
    builder.evidence.counters.retain(|counter| counter.id != 0);
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn money_from_nowhere() {
    let mut builder = valid_history();
    builder.counter(102).balance += 1;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn two_writes_of_the_same_version() {
    let mut builder = valid_history();
    builder.lease(1, "leader", (1, 300), [1000, 1001, 1002, 1003]);
    builder.evidence.writes.last_mut().unwrap().version -= 1;
    builder.resource("leader", 1).version -= 1;
    builder.finds(&[(LostUpdates, 1)]);
}

#[test]
fn a_larger_number_before_a_smaller_one() {
    let mut builder = valid_history();
    let first = builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = builder.lock(2, &[3], [1010, 1011, 1012, 1013]);
    builder.ledger(first, 3).n = 2;
    builder.ledger(second, 3).n = 1;
    builder.finds(&[(Disorder, 1)]);
}

#[test]
fn a_number_of_a_sequence_that_came_too_late() {
    let mut builder = valid_history();
    for begin in [1000, 1010, 1020] {
        builder.pass(1, 2, begin, begin + 5);
    }
    let [.., first, _, last] = builder.evidence.passes.as_mut_slice() else {
        panic!("there are passes");
    };
    std::mem::swap(&mut first.number, &mut last.number);
    // 3 before 2 and 1, 2 before 1: the last two are late.
    builder.finds(&[(Disorder, 2)]);
}

#[test]
fn long_draw_in_between_hides_no_gap() {
    let mut builder = valid_history();
    let late = builder.begin(1, Task::Pass { sequence: 2 }, 1010);
    builder.draw(late, 2);
    builder.end(late, Outcome::Done, None, 1015);
    builder.pass(2, 2, 1000, 1100);
    builder.pass(3, 2, 1000, 1003);
    builder.finds(&[(Disorder, 1)]);
}

#[test]
fn numbers_of_two_at_the_same_time_may_be_in_any_order() {
    let mut builder = valid_history();
    builder.pass(1, 2, 1000, 1010);
    builder.pass(2, 2, 1010, 1020);
    let [.., first, last] = builder.evidence.passes.as_mut_slice() else {
        panic!("there are passes");
    };
    std::mem::swap(&mut first.number, &mut last.number);
    builder.assert_no_violations();
}

#[test]
fn a_gap_in_a_sequence() {
    let mut builder = valid_history();
    builder.pass(1, 2, 1000, 1005);
    builder.sequence(2).last += 3;
    builder.pass(2, 2, 1010, 1015);
    builder.finds(&[(SequenceGaps, 3)]);
}

#[test]
fn a_number_of_a_sequence_below_one() {
    let mut builder = valid_history();
    builder.sequence(2).last = -1;
    builder.pass(1, 2, 1000, 1005);
    assert_eq!(builder.evidence.passes.last().unwrap().number, 0);
    builder.finds(&[(SequenceGaps, 1)]);
}

#[test]
fn the_last_number_was_lost() {
    let mut builder = valid_history();
    builder.sequence(1).last += 1;
    builder.finds(&[(SequenceGaps, 1)]);
}

#[test]
fn a_sequence_that_was_drawn_from_and_has_no_pass() {
    let mut builder = valid_history();
    builder.sequence(2).last = 2;
    builder.finds(&[(SequenceGaps, 2)]);
}

#[test]
fn a_number_drawn_twice() {
    let mut builder = valid_history();
    builder.pass(1, 2, 1000, 1005);
    builder.sequence(2).last -= 1;
    builder.pass(2, 2, 1010, 1015);
    builder.finds(&[(SequenceRepeats, 1)]);
}

#[test]
fn a_number_that_was_drawn_again_after_its_row_was_lost() {
    let mut builder = valid_history();
    for process in [1, 2] {
        let began = 1000 * u64::from(process);
        let op = builder.begin(process, Task::Pass { sequence: 2 }, began);
        builder.drew(op, 1, began + 1);
        builder.end(op, Outcome::Done, None, began + 2);
        if process == 2 {
            builder.draw(op, 2);
        }
    }
    builder.finds(&[(LostCommits, 1), (SequenceRepeats, 1)]);
}

#[test]
fn a_sequence_that_went_back() {
    let mut builder = valid_history();
    builder.sequence(1).last -= 1;
    builder.finds(&[(SequenceRepeats, 1)]);
}

#[test]
fn a_sequence_that_is_gone() {
    let mut builder = valid_history();
    builder.evidence.sequences.retain(|row| row.scope != "1");
    builder.finds(&[(SequenceRepeats, 1)]);
}

#[test]
fn sequences_of_other_names_are_not_checked() {
    let mut builder = valid_history();
    builder.sequence(7).name = "invoice".to_owned();
    builder.evidence.sequences.last_mut().unwrap().last = 7;
    builder.assert_no_violations();
}

#[test]
fn order_is_not_checked_where_updates_were_lost() {
    let mut builder = valid_history();
    let first = builder.lock(1, &[3], [1000, 1001, 1002, 1003]);
    let second = builder.lock(2, &[3], [1010, 1011, 1012, 1013]);
    let third = builder.lock(1, &[3], [1020, 1021, 1022, 1023]);
    for (op, n) in [(first, 2), (second, 1), (third, 1)] {
        builder.ledger(op, 3).n = n;
    }
    builder.counter(3).n = 2;
    builder.finds(&[(LostUpdates, 1)]);
}
