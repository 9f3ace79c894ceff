//! Throughput and waits.

use torture_checker::{Phase, Phases, Times, Waits};
use torture_history::FaultKind;

use crate::history_builder::HistoryBuilder;

fn phases(builder: &HistoryBuilder) -> Phases {
    builder.verdict().unwrap().phases
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-6
}

#[track_caller]
fn is(phase: &Phase, seconds: f64, done: u64) {
    assert!(near(phase.seconds, seconds), "{phase:?}");
    assert_eq!(phase.done, done, "{phase:?}");
    let done = f64::from(u32::try_from(done).unwrap());
    let rate = if seconds > 0.0 { done / seconds } else { 0.0 };
    assert!(near(phase.per_second, rate), "{phase:?}");
}

#[track_caller]
fn waited(waits: &Waits, faults: u64, median_ms: f64, max_ms: f64) {
    assert_eq!(waits.faults, faults, "{waits:?}");
    took(waits.operations, median_ms, max_ms);
}

#[track_caller]
fn took(times: Times, median_ms: f64, max_ms: f64) {
    assert!(near(times.median_ms, median_ms), "{times:?}");
    assert!(near(times.max_ms, max_ms), "{times:?}");
}

#[test]
fn phases_of_a_run_without_faults() {
    let mut builder = HistoryBuilder::new();
    builder.lock(1, &[0], [1000, 1001, 1010, 1020]);
    builder.lock(1, &[0], [2000, 2001, 2010, 2050]);
    let phases = phases(&builder);
    // Processes stop at 60 s.
    is(&phases.calm, 60.0, 2);
    assert!(near(phases.calm_max_ms, 50.0));
    assert!(phases.faults.is_empty());
}

#[test]
fn phases_of_an_empty_run() {
    is(&phases(&HistoryBuilder::new()).calm, 0.0, 0);
}

#[test]
fn operations_belong_to_the_phase_in_which_they_ended() {
    let mut builder = HistoryBuilder::new();
    builder.fault(FaultKind::Crash, None, 10_000, 12_000);
    builder.fault(FaultKind::Crash, None, 11_000, 15_000);
    builder.fault(FaultKind::Kill, Some(1), 14_000, 20_000);
    builder.fault(FaultKind::Hog, None, 59_000, 70_000);
    builder.lock(1, &[0], [9_000, 9_001, 9_002, 9_999]);
    builder.lock(1, &[1], [9_000, 9_001, 9_002, 10_001]);
    builder.lock(1, &[2], [14_000, 14_001, 14_002, 14_500]);
    builder.lock(1, &[3], [19_000, 19_001, 19_002, 21_000]);
    let phases = phases(&builder);
    is(&phases.calm, 49.0, 2);
    is(&phases.faults[&FaultKind::Crash].phase, 5.0, 2);
    is(&phases.faults[&FaultKind::Kill].phase, 6.0, 1);
    is(&phases.faults[&FaultKind::Hog].phase, 1.0, 0);
    // The others overlap a fault.
    assert!(near(phases.calm_max_ms, 999.0));
}

#[test]
fn waits_are_those_of_others() {
    let mut builder = HistoryBuilder::new();
    builder.fault(FaultKind::Pause, Some(1), 10_000, 13_000);
    builder.lock(1, &[0], [9_999, 10_000, 13_001, 13_002]);
    builder.lock(2, &[0], [10_500, 13_003, 13_004, 13_005]);
    builder.lock(3, &[1], [9_000, 9_001, 9_002, 9_999]);
    builder.lock(3, &[1], [13_001, 13_002, 19_000, 19_001]);
    builder.fault(FaultKind::BlackHole, Some(3), 19_000, 19_000);
    builder.lock(2, &[2], [18_900, 18_901, 19_002, 19_003]);
    let phases = phases(&builder);
    waited(&phases.faults[&FaultKind::Pause], 1, 2505.0, 2505.0);
    waited(&phases.faults[&FaultKind::BlackHole], 1, 103.0, 103.0);
}

#[test]
fn a_fault_for_all_keeps_all_waiting() {
    let mut builder = HistoryBuilder::new();
    for (from, ms) in [(10_000, 100), (20_000, 700), (30_000, 300)] {
        builder.fault(FaultKind::Crash, None, from, from + 50);
        builder.lock(1, &[0], [from + 10, from + 11, from + 12, from + 10 + ms]);
    }
    waited(&phases(&builder).faults[&FaultKind::Crash], 3, 300.0, 700.0);
}

#[test]
fn a_fault_without_effect() {
    let mut builder = HistoryBuilder::new();
    builder.fault(FaultKind::Snapshot, None, 10_000, 10_001);
    builder.lock(1, &[0], [1000, 1001, 1002, 9500]);
    builder.lock(1, &[0], [20_000, 20_001, 20_002, 29_000]);
    waited(&phases(&builder).faults[&FaultKind::Snapshot], 1, 0.0, 0.0);
}

#[test]
fn unfinished_operation_waited_as_long_as_its_process_lived() {
    let mut builder = HistoryBuilder::new();
    builder.fault(FaultKind::BlackHole, Some(2), 10_000, 10_001);
    builder.begin(1, crate::history_builder::locking(&[0]), 9_000);
    waited(
        &phases(&builder).faults[&FaultKind::BlackHole],
        1,
        51_000.0,
        51_000.0,
    );
}

#[test]
fn workers_that_complete_nothing() {
    let mut builder = HistoryBuilder::new();
    builder.fault(FaultKind::Crash, None, 10_000, 12_000);
    builder.fault(FaultKind::Pause, Some(1), 10_000, 11_000);
    builder.lock(1, &[0], [9_000, 9_001, 9_002, 9_500]);
    builder.lock(1, &[0], [10_100, 10_101, 17_000, 17_001]);
    builder.lock(1, &[0], [17_100, 17_101, 17_102, 60_000]);
    builder.lock(2, &[1], [9_000, 9_001, 9_002, 9_900]);
    builder.lock(2, &[1], [9_900, 9_901, 9_902, 10_500]);
    builder.lock(2, &[1], [12_500, 12_501, 12_502, 13_500]);
    let phases = phases(&builder);
    took(phases.faults[&FaultKind::Crash].idle, 7501.0, 7501.0);
    took(phases.faults[&FaultKind::Pause].idle, 3000.0, 3000.0);
}
