//! Who held what at the same time.

use torture_checker::Violation::{OverCapacity, OverlappingHolders};
use torture_history::{ErrorKind, FaultKind, Outcome, Task, WaitLimit, workload_spec};

use crate::history_builder::{HistoryBuilder, failed, leasing, locking};
use crate::valid_history::valid_history;

#[test]
fn overlapping_holders_of_a_lock() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1010, 1011]);
    builder.lock(2, &[3], [1000, 1009, 1020, 1021]);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn a_hold_within_another_and_a_third_after_it() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1050, 1051]);
    builder.lock(2, &[3], [1000, 1010, 1020, 1060]);
    builder.lock(3, &[3], [1000, 1030, 1040, 1060]);
    builder.finds(&[(OverlappingHolders, 2)]);
}

#[test]
fn operations_overlapping_in_two_locks_are_counted_once() {
    let mut builder = valid_history();
    builder.lock(1, &[3, 4], [1000, 1001, 1010, 1011]);
    builder.lock(2, &[4, 3, 2], [1000, 1009, 1020, 1021]);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn shared_locks_exclude_only_exclusive_ones() {
    let mut builder = valid_history();
    let before = builder.verdict().unwrap().shared;
    builder.share(1, &[], &[3, 4], [1000, 1001, 1010, 1011]);
    builder.share(2, &[5], &[3], [1000, 1002, 1020, 1021]);
    builder.share(3, &[], &[4], [1000, 1009, 1020, 1021]);
    builder.lock(3, &[3], [1000, 1020, 1025, 1026]);
    builder.assert_no_violations();
    assert_eq!(builder.verdict().unwrap().shared, before + 2);
}

#[test]
fn exclusive_lock_beside_a_shared_one() {
    for (first, second) in [
        ([&[3][..], &[]], [&[][..], &[3][..]]),
        ([&[], &[3]], [&[3], &[]]),
        ([&[], &[3]], [&[3], &[4]]),
    ] {
        let mut builder = valid_history();
        builder.share(1, first[0], first[1], [1000, 1001, 1010, 1011]);
        // Another that shares it, and ends before.
        if first[0].is_empty() {
            builder.share(3, &[], &[3], [1000, 1002, 1003, 1004]);
        }
        builder.share(2, second[0], second[1], [1000, 1009, 1020, 1021]);
        builder.finds(&[(OverlappingHolders, 1)]);
    }
}

#[test]
fn killed_operation_held_the_lock_when_it_entered() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1010, 1030]);
    let killed = builder.begin(12, locking(&[3]), 1000);
    builder.enter(killed, None, 1005);
    builder.count(killed, &[3]);
    builder.kill(12);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn rolled_back_operation_is_not_a_certain_holder() {
    let mut builder = valid_history();
    builder.fault(FaultKind::Reset, None, 1000, 1001);
    let lost = failed(ErrorKind::Connection);
    builder.whole(1, locking(&[3]), None, lost, [1000, 1001, 1010, 1030]);
    builder.lock(2, &[3], [1000, 1005, 1010, 1020]);
    builder.assert_no_violations();
}

/// Two hold slots, and a third is granted one.
fn granted_beyond(builder: &mut HistoryBuilder) {
    for (number, times) in [(1, [1000, 1001]), (2, [1002, 1003]), (3, [2000, 2001])] {
        let op = builder.begin(1, leasing("limited"), times[0]);
        builder.enter(op, Some((number, 1000 + i64::from(number))), times[1]);
        builder.end(op, Outcome::Done, Some(2001), 2600);
        builder.write(op, "limited", (number, 1000 + i64::from(number)));
    }
}

#[test]
fn slot_beyond_the_registered_permits() {
    let broken = failed(ErrorKind::Connection);
    for (changes, found) in [
        (&[][..], &[][..]),
        (&[(2, [1500, 1600], Outcome::Done)], &[(OverCapacity, 1)]),
        (&[(3, [1500, 1600], Outcome::Done)], &[]),
        // The last one counts,
        (
            &[
                (2, [1500, 1600], Outcome::Done),
                (3, [1700, 1800], Outcome::Done),
            ],
            &[],
        ),
        (
            &[
                (3, [1500, 1600], Outcome::Done),
                (2, [1700, 1800], Outcome::Done),
            ],
            &[(OverCapacity, 1)],
        ),
        // unless another was being set.
        (&[(2, [1500, 2000], Outcome::Done)], &[]),
        // It may be carried out at any time.
        (
            &[
                (2, [1500, 1600], Outcome::Done),
                (3, [1610, 1620], broken.clone()),
            ],
            &[],
        ),
    ] {
        let mut builder = valid_history();
        builder.fault(FaultKind::Reset, None, 1605, 1625);
        for (permits, times, outcome) in changes {
            builder.set_permits(*permits, *times, outcome.clone());
        }
        granted_beyond(&mut builder);
        builder.finds(found);
        builder.limits.several_writers = true;
        builder.assert_no_violations();
    }
}

#[test]
fn two_pins_of_a_slot_overlap() {
    let mut builder = valid_history();
    builder.pinned(1, (4, 300), [1000, 1001, 1010, 1011]);
    builder.pinned(2, (4, 301), [1000, 1009, 1020, 1021]);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn pin_by_a_killed_process_after_a_later_grant_overlaps() {
    let mut builder = valid_history();
    let killed = builder.begin(11, Task::Pinned { lease_ms: 1000 }, 1000);
    builder.enter(killed, Some((4, 300)), 1001);
    builder.pinned(2, (4, 301), [1000, 1009, 1020, 1021]);
    builder.count(killed, &[workload_spec::PINNED_COUNTERS.end - 1]);
    builder.kill(11);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn pins_in_the_wrong_order_overlap_once() {
    let mut builder = valid_history();
    builder.pinned(1, (4, 301), [1000, 1001, 1010, 1011]);
    builder.pinned(2, (4, 300), [1000, 1009, 1020, 1021]);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn pins_of_one_slot_use_one_permit() {
    let mut builder = valid_history();
    for process in 1..=5 {
        let (slot, fence) = (process.min(4), 300 + i64::from(process));
        builder.pinned(process, (slot, fence), [1000, 1001, 1010, 1011]);
    }
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn more_holders_than_permits() {
    let mut builder = valid_history();
    builder.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1011]);
    builder.lease(2, "leader", (2, 301), [1000, 1009, 1020, 1021]);
    builder.finds(&[(OverCapacity, 1)]);
}

#[test]
fn overlapping_holders_of_a_slot_while_others_are_free() {
    let mut builder = valid_history();
    builder.lease(1, "collate", (2, 300), [1000, 1001, 1010, 1011]);
    builder.lease(2, "collate", (2, 301), [1000, 1009, 1020, 1021]);
    builder.finds(&[(OverCapacity, 1)]);
}

#[test]
fn second_holder_of_a_slot_counts_after_the_first_has_left() {
    let mut builder = valid_history();
    builder.lease(1, "collate", (2, 300), [1000, 1001, 1010, 1011]);
    builder.lease(2, "collate", (2, 301), [1000, 1009, 1030, 1031]);
    builder.lease(1, "collate", (2, 302), [1012, 1020, 1025, 1026]);
    builder.finds(&[(OverCapacity, 2)]);
}

#[test]
fn more_transactions_with_a_slot_than_permits() {
    let mut builder = valid_history();
    for (process, entered) in [(1, 1001), (2, 1002), (3, 1003)] {
        builder.slot(process, [1000, entered, 1010, 1011]);
    }
    builder.finds(&[(OverCapacity, 1)]);
}

#[test]
fn transaction_with_two_slots_counts_twice() {
    for (entered, found) in [(1010, &[][..]), (1009, &[(OverCapacity, 1)])] {
        let mut builder = valid_history();
        let wait = WaitLimit::AtMost(500);
        let two = Task::Slot { permits: 2, wait };
        let two = builder.whole(1, two, None, Outcome::Done, [1000, 1001, 1010, 1011]);
        builder.use_slot(two);
        builder.slot(2, [1000, entered, 1020, 1021]);
        builder.finds(found);
    }
}

#[test]
fn killed_process_with_a_committed_transaction_held_its_slot() {
    for (committed, found) in [(true, &[(OverCapacity, 1)][..]), (false, &[])] {
        let mut builder = valid_history();
        builder.slot(1, [1000, 1001, 1010, 1011]);
        builder.slot(2, [1000, 1002, 1010, 1011]);
        let wait = WaitLimit::Forever;
        let killed = builder.begin(13, Task::Slot { permits: 1, wait }, 1000);
        builder.enter(killed, None, 1003);
        if committed {
            builder.use_slot(killed);
        }
        builder.kill(13);
        builder.finds(found);
    }
}

#[test]
fn transactions_with_a_slot_that_follow_each_other() {
    let mut builder = valid_history();
    builder.slot(1, [1000, 1001, 1010, 1011]);
    builder.slot(2, [1000, 1002, 1012, 1013]);
    // From when COMMIT was sent the slot may be another's.
    builder.slot(3, [1000, 1010, 1020, 1021]);
    builder.slot(1, [1012, 1012, 1020, 1021]);
    builder.assert_no_violations();
}

#[test]
fn more_pinned_slots_than_permits() {
    let mut builder = valid_history();
    let fifth = workload_spec::PINNED_COUNTERS.end;
    let id = i32::try_from(fifth).unwrap();
    let (n, balance) = (0, 0);
    let counter = torture_checker::Counter { id, n, balance };
    builder.evidence.counters.push(counter);
    for slot in 1..=5 {
        builder.pinned(
            slot,
            (slot, 300 + i64::from(slot)),
            [1000, 1001, 1010, 1011],
        );
    }
    builder.finds(&[(OverCapacity, 1)]);
}

#[test]
fn killed_operation_believed_to_hold_when_it_entered() {
    for (entered, believed) in [(1990, true), (2001, false)] {
        let mut builder = valid_history();
        builder.lease(1, "leader", (1, 400), [1000, 1980, 2100, 2101]);
        // With a lease of one second, asked for at 1000: what it entered with at 2001 may have ended.
        let killed = builder.begin(12, leasing("leader"), 1000);
        builder.enter(killed, Some((1, 401)), entered);
        builder.kill(12);
        if believed {
            builder.finds(&[(OverCapacity, 1)]);
        } else {
            builder.assert_no_violations();
        }
    }
}

#[test]
fn a_holder_that_no_longer_believed_does_not_count() {
    let mut builder = valid_history();
    builder.fault(FaultKind::Pause, Some(1), 1002, 2500);
    let fenced = failed(ErrorKind::Fenced);
    builder.whole(
        1,
        leasing("leader"),
        Some((1, 300)),
        fenced,
        [1000, 1001, 1100, 2501],
    );
    builder.lease(2, "leader", (1, 301), [2200, 2201, 2300, 2301]);
    // Entered after their leases had ended by their own count.
    for (fence, held_until) in [(302, None), (303, Some(2249))] {
        let late = builder.begin(3, leasing("leader"), 1150);
        builder.enter(late, Some((1, fence)), 2250);
        builder.end(late, failed(ErrorKind::SlotLost), held_until, 2251);
    }
    builder.assert_no_violations();
}

#[test]
fn a_jump_of_the_clock_cuts_what_was_believed_before_it() {
    let right_with = |kind, from, until| {
        let mut builder = valid_history();
        builder.fault(kind, None, from, until);
        builder.lease(1, "leader", (1, 300), [1000, 1001, 1500, 1501]);
        builder.lease(2, "leader", (1, 301), [1300, 1301, 1400, 1401]);
        builder
    };
    // Ahead at its beginning, back and then ahead at its end.
    right_with(FaultKind::ClockAhead, 1200, 1800).assert_no_violations();
    right_with(FaultKind::ClockBack, 100, 1200).assert_no_violations();
    // Within the tolerance of 10 ms: the jump may have come after the grant, and before the second.
    right_with(FaultKind::ClockAhead, 995, 1800).assert_no_violations();
    right_with(FaultKind::ClockAhead, 1310, 1800).assert_no_violations();
    // None of these lets a lease end early.
    for (kind, from, until) in [
        (FaultKind::ClockAhead, 500, 1200),
        (FaultKind::ClockBack, 1200, 1800),
        (FaultKind::ClockAhead, 989, 1200),
        (FaultKind::ClockAhead, 1450, 1800),
        (FaultKind::Pause, 1200, 1250),
    ] {
        right_with(kind, from, until).finds(&[(OverCapacity, 1)]);
    }
}

#[test]
fn a_jump_of_the_clock_does_not_excuse_transactions() {
    let mut builder = valid_history();
    builder.fault(FaultKind::ClockAhead, None, 1005, 1800);
    builder.pinned(1, (4, 300), [1000, 1001, 1020, 1021]);
    builder.pinned(2, (4, 301), [1000, 1009, 1030, 1031]);
    builder.finds(&[(OverlappingHolders, 1)]);
}

#[test]
fn operation_that_changed_slots_holds_the_last() {
    let mut builder = valid_history();
    let twice = builder.begin(1, leasing("collate"), 1000);
    builder.enter(twice, Some((1, 300)), 1001);
    builder.enter(twice, Some((2, 301)), 1050);
    builder.end(twice, Outcome::Done, Some(1060), 1061);
    builder.write(twice, "collate", (2, 301));
    builder.lease(2, "collate", (1, 302), [1052, 1053, 1055, 1056]);
    builder.assert_no_violations();
}
