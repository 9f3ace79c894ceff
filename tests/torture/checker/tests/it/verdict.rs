//! What is said about it.

use serde_json::json;
use torture_checker::Violation;
use torture_history::{FaultKind, Outcome};

use crate::history_builder::{HistoryBuilder, locking};
use crate::valid_history::valid_history;

/// A lost update and a lost commit, among faults.
fn wrong() -> HistoryBuilder {
    let mut builder = valid_history();
    builder.counter(3).n += 1;
    builder.whole(
        2,
        locking(&[4]),
        None,
        Outcome::Done,
        [1000, 1001, 1250, 1500],
    );
    builder.fault(FaultKind::Kill, Some(7), 2000, 2100);
    builder.fault(FaultKind::Kill, Some(8), 2050, 2200);
    builder.fault(FaultKind::BlackHole, None, 3000, 3100);
    builder
}

#[test]
fn as_json_it_is_one_object() {
    let verdict = wrong().verdict().unwrap();
    let object = serde_json::to_value(&verdict).unwrap();
    assert_eq!(object["operations"], 42);
    assert_eq!(object["violations"], 2);
    for violation in Violation::ALL {
        let name = serde_json::to_value(violation).unwrap();
        assert_eq!(name, violation.name());
        assert_eq!(
            object[violation.name()],
            verdict.count(violation),
            "{violation:?}"
        );
    }
    assert_eq!(object["lost_updates"], 1);
    assert_eq!(object["lost_commits"], 1);
    assert_eq!(object["hung"], 0);
    let faults = object["faults"].as_object().unwrap();
    assert_eq!(faults.len(), FaultKind::ALL.len());
    assert_eq!(faults["kill"], 2);
    assert_eq!(faults["black-hole"], 1);
    assert_eq!(faults["snapshot"], 0);
    assert_eq!(object["outcomes"]["lock"], json!({"done": 5}));
    assert_eq!(
        object["outcomes"]["slot"],
        json!({"done": 3, "timed_out": 1})
    );
    let of_r2d2 = &object["clients"]["r2d2"];
    assert_eq!(of_r2d2["timed_out"], 1);
    assert_eq!(object["clients"].as_object().unwrap().len(), 1);
    assert_eq!(object["phases"]["faults"]["kill"]["faults"], 2);
    // The black hole is after everything.
    let judged = json!({"late_timeouts": 22, "lost_leases": 4, "unexpected_errors": 42});
    assert_eq!(object["judged"], judged);
    assert!(!serde_json::to_string(&verdict).unwrap().contains('\n'));
}

#[test]
fn violations_name_processes_and_times() {
    let text = wrong().verdict().unwrap().to_string();
    for part in [
        "42 operations\n",
        "lock: 5 done\n",
        "judged without any excuse: lost_leases 4, late_timeouts 22, unexpected_errors 42\n",
        "2 violations\n",
        "lost_updates: 1\n    counter 3 was set to 0 last, and is 1\n",
        "operation 2-42 (lock of worker 2, process 2, r2d2, 1.000000 s to 1.500000 s) was told that it is done",
        "hung: 0\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn only_the_first_violations_are_explained() {
    let mut builder = valid_history();
    for lock in 0..30 {
        builder
            .evidence
            .transient_locks
            .push(format!("object {lock}"));
    }
    let verdict = builder.verdict().unwrap();
    let found = &verdict.violations[&Violation::LeftLocks];
    assert_eq!((found.count, found.examples.len()), (30, 20));
    assert_eq!(verdict.total(), 30);
}

#[test]
fn excused_operations_are_not_counted_as_judged() {
    let judged = |prepare: fn(&mut HistoryBuilder)| {
        let mut builder = valid_history();
        prepare(&mut builder);
        let judged = builder.verdict().unwrap().judged;
        let [leases, timeouts, errors] = [
            Violation::LostLeases,
            Violation::LateTimeouts,
            Violation::UnexpectedErrors,
        ]
        .map(|check| judged[&check]);
        assert_eq!(judged.len(), 3);
        [leases, timeouts, errors]
    };
    assert_eq!(judged(|_| ()), [4, 22, 41]);
    // Of all, and of each moment.
    let of_all = |builder: &mut HistoryBuilder| builder.fault(FaultKind::BlackHole, None, 0, 300);
    assert_eq!(judged(of_all), [0, 0, 0]);
    // The lease that is renewed is worker 1's, and each worker has run a tick.
    let of_one =
        |builder: &mut HistoryBuilder| builder.fault(FaultKind::BlackHole, Some(2), 0, 300);
    assert_eq!(judged(of_one), [3, 14, 28]);
    let of_one = |builder: &mut HistoryBuilder| builder.fault(FaultKind::Hog, Some(1), 0, 300);
    assert_eq!(judged(of_one), [2, 14, 41]);
    // One that did not come back is not judged by how.
    let killed = |builder: &mut HistoryBuilder| {
        builder.begin(1, locking(&[0]), 1000);
        builder.kill(1);
    };
    assert_eq!(judged(killed), [4, 22, 41]);
}
