//! Fences of grants, and of writes.

use torture_checker::Violation::{Fences, StaleWrites};
use torture_history::ErrorKind;

use crate::play::{failed, leasing};
use crate::right::right;

#[test]
fn a_write_by_a_stale_fence() {
    let mut play = right();
    let slow = play.begin(1, leasing("leader"), 1000);
    play.enter(slow, Some((1, 300)), 1001);
    play.lease(2, "leader", (1, 301), [1100, 1101, 1110, 1111]);
    play.write(slow, "leader", (1, 300));
    play.end(slow, torture_history::Outcome::Done, Some(1050), 1200);
    play.finds(&[(StaleWrites, 1)]);
    // All that follow are judged by the larger fence.
    play.lease(1, "leader", (1, 302), [1300, 1301, 1310, 1311]);
    play.finds(&[(StaleWrites, 1)]);
}

#[test]
fn a_resource_that_does_not_remember_its_fence() {
    for wrong in [-1, 1] {
        let mut play = right();
        play.resource("leader", 1).fence += wrong;
        play.finds(&[(StaleWrites, 1)]);
    }
    let mut play = right();
    play.resource("leader", 2).fence = 1;
    play.finds(&[(StaleWrites, 1)]);
}

#[test]
fn a_write_with_another_s_fence() {
    let mut play = right();
    play.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1011]);
    play.lease(2, "leader", (1, 300), [1020, 1021, 1030, 1031]);
    // It can't be, unless it was granted twice.
    play.finds(&[(StaleWrites, 1), (Fences, 1)]);
}

#[test]
fn a_fence_that_did_not_grow() {
    let mut play = right();
    play.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1011]);
    let refused = failed(ErrorKind::Fenced);
    play.whole(
        2,
        leasing("leader"),
        Some((1, 299)),
        refused,
        [1020, 1021, 1030, 2031],
    );
    play.finds(&[(Fences, 1)]);
}

#[test]
fn a_fence_that_did_not_grow_within_an_operation() {
    let mut play = right();
    let twice = play.begin(1, leasing("leader"), 1000);
    play.enter(twice, Some((1, 300)), 1001);
    play.enter(twice, Some((1, 299)), 1005);
    play.end(twice, failed(ErrorKind::SlotLost), None, 2011);
    // The first was answered when the second was asked for, not before: only one more says that it went back.
    play.is_right();
    play.lease(2, "leader", (1, 298), [1020, 1021, 1030, 1031]);
    play.finds(&[(Fences, 1)]);
}

#[test]
fn an_operation_that_enters_again_asks_again() {
    let mut play = right();
    let twice = play.begin(1, leasing("leader"), 1000);
    play.lease(2, "leader", (1, 305), [1000, 1005, 1006, 1007]);
    play.enter(twice, Some((1, 304)), 1010);
    play.enter(twice, Some((1, 303)), 1020);
    play.end(twice, failed(ErrorKind::SlotLost), None, 2021);
    play.finds(&[(Fences, 1)]);
}

#[test]
fn a_fence_that_two_slots_have() {
    let mut play = right();
    play.lease(1, "collate", (1, 300), [1000, 1001, 1010, 1011]);
    play.lease(2, "collate", (2, 300), [1020, 1021, 1030, 1031]);
    play.finds(&[(Fences, 1)]);
}

#[test]
fn a_fence_that_is_smaller_than_that_of_another_slot_before() {
    let mut play = right();
    play.lease(1, "collate", (1, 301), [1000, 1001, 1010, 1011]);
    play.lease(2, "collate", (2, 300), [1020, 1021, 1030, 1031]);
    play.finds(&[(Fences, 1)]);
}

#[test]
fn fences_of_different_semaphores_may_be_in_any_order() {
    let mut play = right();
    play.lease(1, "collate", (1, 301), [1000, 1001, 1010, 1011]);
    play.lease(2, "leader", (1, 300), [1020, 1021, 1030, 1031]);
    play.is_right();
}

#[test]
fn fences_of_different_slots_granted_at_the_same_time_may_be_in_any_order() {
    let mut play = right();
    play.lease(1, "collate", (1, 301), [1000, 1001, 1010, 1011]);
    play.lease(2, "collate", (2, 300), [1001, 1021, 1030, 1031]);
    play.is_right();
}

#[test]
fn fences_of_grants_at_the_same_time_may_be_in_any_order() {
    let mut play = right();
    play.lease(2, "leader", (1, 300), [1000, 1010, 1015, 1016]);
    play.whole(
        1,
        leasing("leader"),
        Some((1, 299)),
        failed(ErrorKind::SlotLost),
        [1000, 1020, 1020, 2030],
    );
    play.is_right();
}

#[test]
fn grants_of_killed_processes_count() {
    let mut play = right();
    let killed = play.begin(12, leasing("leader"), 1000);
    play.enter(killed, Some((1, 300)), 1001);
    play.kill(12);
    let refused = failed(ErrorKind::Fenced);
    play.whole(
        1,
        leasing("leader"),
        Some((1, 250)),
        refused,
        [3000, 3001, 3010, 4011],
    );
    play.finds(&[(Fences, 1)]);
}
