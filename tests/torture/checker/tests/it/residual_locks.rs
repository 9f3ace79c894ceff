//! What was left.

use torture_checker::Violation::{LeftLocks, LeftSlots};

use crate::valid_history::valid_history;

#[test]
fn a_row_of_a_lock() {
    let mut builder = valid_history();
    builder.evidence.transient_locks.push("object 3".to_owned());
    builder.finds(&[(LeftLocks, 1)]);
}

#[test]
fn a_slot_whose_lease_has_not_ended() {
    let mut builder = valid_history();
    builder.evidence.slots[0].expires_us = builder.evidence.now_us;
    builder.assert_no_violations();
    builder.evidence.slots[0].expires_us += 1;
    builder.finds(&[(LeftSlots, 1)]);
}

#[test]
fn a_slot_whose_row_is_locked() {
    let mut builder = valid_history();
    builder.evidence.locked_slots.push(("leader".to_owned(), 1));
    builder.finds(&[(LeftSlots, 1)]);
    // It is one slot, for whichever reason.
    builder.evidence.slots[0].expires_us = i64::MAX;
    assert_eq!(builder.evidence.slots[0].name, "leader");
    builder.finds(&[(LeftSlots, 1)]);
}

#[test]
fn a_write_lock_left_over() {
    let mut builder = valid_history();
    builder.evidence.somebody_writes = true;
    builder.finds(&[(LeftSlots, 1)]);
}
