//! Ticks of a timer.

use std::time::Duration;

use torture_checker::Violation::{
    EarlyTimeouts, LateTimeouts, LostLeases, OverCapacity, RepeatedTicks,
};
use torture_history::{ErrorKind, FaultKind, Task};

use crate::history_builder::failed;
use crate::valid_history::valid_history;

#[test]
fn a_tick_that_is_run_again() {
    // The last one is that of 1070 ms. Its process was killed, or the clock jumped, and it was not to be repeated.
    for (due, found) in [
        (1570, &[][..]),
        (1070, &[(RepeatedTicks, 1)]),
        (570, &[(RepeatedTicks, 1)]),
        (1571, &[(RepeatedTicks, 1)]),
    ] {
        for kind in FaultKind::ALL {
            let mut builder = valid_history();
            builder.fault(kind, None, 1090, 1500);
            builder.tick(1, (103, due), [1050, 1400, 1410, 1411]);
            builder.finds(found);
        }
    }
}

#[test]
fn ticks_after_one_that_is_run_again_are_compared_with_the_last() {
    let mut builder = valid_history();
    builder.tick(1, (103, 570), [1050, 1400, 1410, 1411]);
    builder.tick(1, (104, 1070), [1450, 1500, 1510, 1511]);
    builder.tick(1, (105, 1570), [1550, 1600, 1610, 1611]);
    builder.finds(&[(RepeatedTicks, 2)]);
}

#[test]
fn two_ticks_that_run_at_the_same_time() {
    for (from, found) in [(1410, &[][..]), (1409, &[(OverCapacity, 1)])] {
        let mut builder = valid_history();
        builder.tick(1, (103, 1570), [1050, 1400, 1410, 1411]);
        builder.tick(2, (104, 2070), [1050, from, 1710, 1711]);
        builder.finds(found);
    }
}

#[test]
fn a_tick_that_loses_its_slot() {
    for (kind, found) in [
        (FaultKind::Snapshot, &[(LostLeases, 1)][..]),
        (FaultKind::Pause, &[]),
    ] {
        let mut builder = valid_history();
        builder.fault(kind, Some(1), 1050, 1060);
        let op = builder.tick(1, (103, 1570), [1050, 1400, 1410, 1411]);
        let last = builder.records.get_mut(&1).unwrap();
        last.pop();
        builder.end(op, failed(ErrorKind::SlotLost), Some(1405), 1411);
        builder.evidence.writes.pop();
        let resource = builder.resource("timer", 1);
        (resource.version, resource.fence) = (3, 102);
        builder.finds(found);
    }
}

#[test]
fn a_wait_for_a_tick_ends_in_time() {
    for (ms, found) in [
        (2500, &[][..]),
        (2498, &[(EarlyTimeouts, 1)]),
        (12_500, &[]),
        (12_501, &[(LateTimeouts, 1)]),
    ] {
        let mut builder = valid_history();
        builder.limits.longest = Duration::from_secs(60);
        let op = builder.begin(1, Task::Tick { lease_ms: 1000 }, 1000);
        builder.end(op, failed(ErrorKind::TimedOut), None, ms);
        builder.finds(found);
    }
}

#[test]
fn only_ticks_are_due() {
    let mut builder = valid_history();
    let op = builder.begin(1, Task::Tick { lease_ms: 1000 }, 1000);
    builder.enter(op, Some((1, 103)), 1001);
    assert!(builder.verdict().is_err());
}
