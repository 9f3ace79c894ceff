//! What was left.

use torture_checker::Violation::{LeftLocks, LeftSlots};

use crate::right::right;

#[test]
fn a_row_of_a_lock() {
    let mut play = right();
    play.evidence.transient_locks.push("object 3".to_owned());
    play.finds(&[(LeftLocks, 1)]);
}

#[test]
fn a_slot_whose_lease_has_not_ended() {
    let mut play = right();
    play.evidence.slots[0].expires_us = play.evidence.now_us;
    play.is_right();
    play.evidence.slots[0].expires_us += 1;
    play.finds(&[(LeftSlots, 1)]);
}

#[test]
fn a_slot_whose_row_is_locked() {
    let mut play = right();
    play.evidence.locked_slots.push(("leader".to_owned(), 1));
    play.finds(&[(LeftSlots, 1)]);
    // It is one slot, for whichever reason.
    play.evidence.slots[0].expires_us = i64::MAX;
    assert_eq!(play.evidence.slots[0].name, "leader");
    play.finds(&[(LeftSlots, 1)]);
}

#[test]
fn somebody_has_the_right_to_write() {
    let mut play = right();
    play.evidence.somebody_writes = true;
    play.finds(&[(LeftSlots, 1)]);
}
