//! Locks and leases that remain after all workers have ended.

use std::collections::BTreeSet;

use crate::findings::Findings;
use crate::{Evidence, Violation};

/// Finds rows and slots that are left although nothing is held.
pub(crate) fn check(evidence: &Evidence, findings: &mut Findings) {
    for id in &evidence.transient_locks {
        findings.add(Violation::LeftLocks, || {
            format!("the row of {id:?}, which is not kept")
        });
    }
    let locked: BTreeSet<_> = evidence.locked_slots.iter().collect();
    for (name, number) in &locked {
        findings.add(Violation::LeftSlots, || {
            format!("slot {number} of {name:?}: a transaction has its row locked")
        });
    }
    for slot in &evidence.slots {
        let is_locked = locked.contains(&(slot.name.clone(), slot.number));
        let left_us = slot.expires_us.saturating_sub(evidence.now_us);
        if left_us > 0 && !is_locked {
            findings.add(Violation::LeftSlots, || {
                let (number, name) = (slot.number, &slot.name);
                let holder = slot.holder.as_deref().unwrap_or("nobody by name");
                format!("slot {number} of {name:?}: leased to {holder} for {left_us} µs more")
            });
        }
    }
    if evidence.somebody_writes {
        findings.add(Violation::LeftSlots, || {
            "a transaction has the right to write, and with it all slots".to_owned()
        });
    }
}
