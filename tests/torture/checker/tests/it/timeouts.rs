//! Waits that ended too early, or too late.

use torture_checker::Violation::{self, EarlyTimeouts, LateTimeouts, UnexpectedErrors};
use torture_history::{ErrorKind, FaultKind, Task, Waiting};

use crate::play::{Play, failed};

const SLOT: Task = Task::Slot {
    wait: Waiting::AtMost(100),
};

/// What is found when a task that began at 20 s fails so after so many milliseconds.
fn after(
    task: &Task,
    kind: ErrorKind,
    ms: u64,
    prepare: impl Fn(&mut Play),
) -> Vec<(Violation, u64)> {
    let mut play = Play::new();
    prepare(&mut play);
    let op = play.begin(1, task.clone(), 20_000);
    play.end(op, failed(kind), None, 20_000 + ms);
    play.found()
}

#[test]
fn a_wait_is_as_long_as_was_asked_for() {
    let lock = Task::Lock {
        counters: vec![1],
        kept: true,
        wait: Waiting::AtMost(100),
    };
    let lease = Task::Lease {
        semaphore: "leader".to_owned(),
        renewed: false,
        lease_ms: 1000,
        wait: Waiting::AtMost(100),
    };
    for (task, ms) in [
        (SLOT, 100),
        (lock, 100),
        (lease, 100),
        (Task::Ensured { lease_ms: 300 }, 1000),
    ] {
        let timed_out = |ms| after(&task, ErrorKind::TimedOut, ms, |_| ());
        assert_eq!(timed_out(ms - 2), [(EarlyTimeouts, 1)], "{task:?}");
        assert_eq!(timed_out(ms - 1), [], "{task:?}");
        assert_eq!(timed_out(ms + 5000), [], "{task:?}");
        assert_eq!(timed_out(ms + 5001), [(LateTimeouts, 1)], "{task:?}");
    }
}

#[test]
fn other_errors_have_no_time() {
    assert_eq!(
        after(&SLOT, ErrorKind::Other, 1, |_| ()),
        [(UnexpectedErrors, 1)]
    );
    let pass = Task::Pass { sequence: 1 };
    assert_eq!(after(&pass, ErrorKind::Deadlock, 1, |_| ()), []);
}

#[test]
fn only_a_jump_ahead_ends_a_wait_early() {
    for kind in FaultKind::ALL {
        let fault = |play: &mut Play| play.fault(kind, None, 20_005, 20_600);
        let found = after(&SLOT, ErrorKind::TimedOut, 50, fault);
        if kind == FaultKind::ClockAhead {
            assert_eq!(found, []);
        } else {
            assert_eq!(found, [(EarlyTimeouts, 1)], "{kind:?}");
        }
    }
}

#[test]
fn a_fault_of_its_own_or_of_all_lets_a_wait_end_late() {
    for kind in FaultKind::ALL {
        let cuts = kind.cuts();
        for (worker, from, until, excused) in [
            (Some(1), 7000, 7999, false),
            (Some(1), 7000, 8000, cuts),
            (Some(1), 20_005, 20_600, true),
            (None, 7000, 8000, cuts),
            (None, 20_005, 20_600, true),
            (Some(2), 20_005, 20_600, false),
            (None, 26_001, 26_002, false),
        ] {
            let fault = |play: &mut Play| play.fault(kind, worker, from, until);
            let found = after(&SLOT, ErrorKind::TimedOut, 6000, fault);
            let expected: &[_] = if excused { &[] } else { &[(LateTimeouts, 1)] };
            assert_eq!(found, expected, "{kind:?} of {worker:?} from {from}");
        }
    }
}
