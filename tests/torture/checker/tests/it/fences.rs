//! Fences of grants, and of writes.

use torture_checker::Violation::{Fences, StaleWrites};
use torture_history::ErrorKind;

use crate::history_builder::{failed, leasing};
use crate::valid_history::valid_history;

#[test]
fn a_write_by_a_stale_fence() {
    let mut builder = valid_history();
    let slow = builder.begin(1, leasing("leader"), 1000);
    builder.enter(slow, Some((1, 300)), 1001);
    builder.lease(2, "leader", (1, 301), [1100, 1101, 1110, 1111]);
    builder.write(slow, "leader", (1, 300));
    builder.end(slow, torture_history::Outcome::Done, Some(1050), 1200);
    builder.finds(&[(StaleWrites, 1)]);
    // All that follow are judged by the larger fence.
    builder.lease(1, "leader", (1, 302), [1300, 1301, 1310, 1311]);
    builder.finds(&[(StaleWrites, 1)]);
}

#[test]
fn a_resource_that_does_not_remember_its_fence() {
    for wrong in [-1, 1] {
        let mut builder = valid_history();
        builder.resource("leader", 1).fence += wrong;
        builder.finds(&[(StaleWrites, 1)]);
    }
    let mut builder = valid_history();
    builder.resource("leader", 2).fence = 1;
    builder.finds(&[(StaleWrites, 1)]);
}

#[test]
fn a_write_with_another_s_fence() {
    let mut builder = valid_history();
    builder.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1011]);
    builder.lease(2, "leader", (1, 300), [1020, 1021, 1030, 1031]);
    // It can't be, unless it was granted twice.
    builder.finds(&[(StaleWrites, 1), (Fences, 1)]);
}

#[test]
fn a_fence_that_did_not_grow() {
    let mut builder = valid_history();
    builder.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1011]);
    let refused = failed(ErrorKind::Fenced);
    builder.whole(
        2,
        leasing("leader"),
        Some((1, 299)),
        refused,
        [1020, 1021, 1030, 2031],
    );
    builder.finds(&[(Fences, 1)]);
}

#[test]
fn where_several_nodes_write_fences_grow_within_a_slot() {
    for (slot, violations) in [(1, &[(Fences, 1)][..]), (2, &[])] {
        let mut builder = valid_history();
        builder.limits.several_writers = true;
        builder.lease(1, "collate", (1, 300), [1000, 1001, 1010, 1011]);
        let refused = failed(ErrorKind::Fenced);
        builder.whole(
            2,
            leasing("collate"),
            Some((slot, 299)),
            refused,
            [1020, 1021, 1030, 2031],
        );
        builder.finds(violations);
    }
}

#[test]
fn a_fence_that_did_not_grow_within_an_operation() {
    let mut builder = valid_history();
    let twice = builder.begin(1, leasing("leader"), 1000);
    builder.enter(twice, Some((1, 300)), 1001);
    builder.enter(twice, Some((1, 299)), 1005);
    builder.end(twice, failed(ErrorKind::SlotLost), None, 2011);
    // The first was answered when the second was asked for, not before: only one more says that it went back.
    builder.assert_no_violations();
    builder.lease(2, "leader", (1, 298), [1020, 1021, 1030, 1031]);
    builder.finds(&[(Fences, 1)]);
}

#[test]
fn an_operation_that_enters_again_asks_again() {
    let mut builder = valid_history();
    let twice = builder.begin(1, leasing("leader"), 1000);
    builder.lease(2, "leader", (1, 305), [1000, 1005, 1006, 1007]);
    builder.enter(twice, Some((1, 304)), 1010);
    builder.enter(twice, Some((1, 303)), 1020);
    builder.end(twice, failed(ErrorKind::SlotLost), None, 2021);
    builder.finds(&[(Fences, 1)]);
}

#[test]
fn a_fence_that_two_slots_have() {
    let mut builder = valid_history();
    builder.lease(1, "collate", (1, 300), [1000, 1001, 1010, 1011]);
    builder.lease(2, "collate", (2, 300), [1020, 1021, 1030, 1031]);
    builder.finds(&[(Fences, 1)]);
}

#[test]
fn a_fence_that_is_smaller_than_that_of_another_slot_before() {
    let mut builder = valid_history();
    builder.lease(1, "collate", (1, 301), [1000, 1001, 1010, 1011]);
    builder.lease(2, "collate", (2, 300), [1020, 1021, 1030, 1031]);
    builder.finds(&[(Fences, 1)]);
}

#[test]
fn fences_of_different_semaphores_may_be_in_any_order() {
    let mut builder = valid_history();
    builder.lease(1, "collate", (1, 301), [1000, 1001, 1010, 1011]);
    builder.lease(2, "leader", (1, 300), [1020, 1021, 1030, 1031]);
    builder.assert_no_violations();
}

#[test]
fn fences_of_different_slots_granted_at_the_same_time_may_be_in_any_order() {
    let mut builder = valid_history();
    builder.lease(1, "collate", (1, 301), [1000, 1001, 1010, 1011]);
    builder.lease(2, "collate", (2, 300), [1001, 1021, 1030, 1031]);
    builder.assert_no_violations();
}

#[test]
fn fences_of_grants_at_the_same_time_may_be_in_any_order() {
    let mut builder = valid_history();
    builder.lease(2, "leader", (1, 300), [1000, 1010, 1015, 1016]);
    builder.whole(
        1,
        leasing("leader"),
        Some((1, 299)),
        failed(ErrorKind::SlotLost),
        [1000, 1020, 1020, 2030],
    );
    builder.assert_no_violations();
}

#[test]
fn grants_of_killed_processes_count() {
    let mut builder = valid_history();
    let killed = builder.begin(12, leasing("leader"), 1000);
    builder.enter(killed, Some((1, 300)), 1001);
    builder.kill(12);
    let refused = failed(ErrorKind::Fenced);
    builder.whole(
        1,
        leasing("leader"),
        Some((1, 250)),
        refused,
        [3000, 3001, 3010, 4011],
    );
    builder.finds(&[(Fences, 1)]);
}
