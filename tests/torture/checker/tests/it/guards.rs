//! Guards that lose their slots, and slots that are handed over within a process.

use torture_checker::Violation::{LateHandOvers, UnreportedLosses};
use torture_history::{FaultKind, GuardEvent, Task};

use crate::valid_history::valid_history;

#[test]
fn a_loss_that_a_guard_does_not_report() {
    let mut builder = valid_history();
    builder.fault(FaultKind::BlackHole, Some(1), 1000, 2000);
    builder.revoked(1, [1000, 1001, 1002], None);
    builder.finds(&[(UnreportedLosses, 1)]);
}

#[test]
fn a_loss_that_is_reported_long_after_the_lease() {
    for (ms, found) in [(6999, &[][..]), (7003, &[(UnreportedLosses, 1)])] {
        let mut builder = valid_history();
        builder.revoked(1, [1000, 1001, 1002], Some(ms));
        builder.finds(found);
    }
    for kind in [FaultKind::Pause, FaultKind::Hog, FaultKind::ClockBack] {
        let mut builder = valid_history();
        builder.fault(kind, None, 1500, 6500);
        builder.revoked(1, [1000, 1001, 1002], Some(7003));
        builder.assert_no_violations();
    }
}

#[test]
fn a_holder_that_hangs_and_does_not_lose_its_slot() {
    for (reported, found) in [
        (Some(8001), &[][..]),
        (Some(8003), &[(UnreportedLosses, 1)]),
        (None, &[(UnreportedLosses, 1)]),
    ] {
        let mut builder = valid_history();
        builder.stuck(1, [1000, 1001, 1002], reported);
        builder.finds(found);
    }
}

#[test]
fn a_request_for_a_release_that_a_guard_does_not_show() {
    for (reported, found) in [
        (Some(7001), &[][..]),
        (Some(7003), &[(UnreportedLosses, 1)]),
        (None, &[(UnreportedLosses, 1)]),
    ] {
        let mut builder = valid_history();
        builder.asked(1, [1000, 1001, 1002], reported);
        builder.finds(found);
    }
}

#[test]
fn a_guard_whose_slot_was_not_revoked_reports_nothing() {
    let mut builder = valid_history();
    let op = builder.begin(1, Task::Revoked { lease_ms: 1000 }, 1000);
    builder.enter(op, Some((1, 1)), 1001);
    builder.guard(op, GuardEvent::LossReported, 1002);
    assert!(builder.verdict().is_err());
}

#[test]
fn most_hand_overs_are_late() {
    // The history has one of a millisecond.
    for (late, found) in [
        (0, &[][..]),
        (1, &[(LateHandOvers, 1)]),
        (5, &[(LateHandOvers, 1)]),
    ] {
        let mut builder = valid_history();
        for number in 0..late {
            let from = 1000 + 3000 * number;
            builder.hand_over(1, [from, from + 1, from + 2], Some(from + 1003));
        }
        builder.finds(found);
    }
}

#[test]
fn a_slot_that_the_other_thread_does_not_get_is_handed_over_late() {
    let mut builder = valid_history();
    builder.hand_over(1, [1000, 1001, 1002], None);
    builder.finds(&[(LateHandOvers, 1)]);
}

#[test]
fn hand_overs_near_a_fault_do_not_count() {
    for (kind, found) in [
        (FaultKind::Reset, &[][..]),
        (FaultKind::Pause, &[]),
        (FaultKind::Snapshot, &[(LateHandOvers, 1)]),
    ] {
        let mut builder = valid_history();
        builder.fault(kind, Some(1), 900, 1000);
        builder.hand_over(1, [1000, 1001, 1002], Some(3000));
        builder.finds(found);
    }
}
