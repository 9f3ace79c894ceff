//! Waits that ended too early, or too late.

use std::time::Duration;

use torture_checker::Violation::{self, EarlyTimeouts, LateTimeouts, UnexpectedErrors};
use torture_history::{Client, ErrorKind, FaultKind, Outcome, Record, Task, WaitLimit};

use crate::history_builder::{HistoryBuilder, at, failed, locking_within};

const SLOT: Task = Task::Slot {
    permits: 1,
    wait: WaitLimit::AtMost(100),
};

/// What is found when a task that began at 20 s fails in this way after a time in milliseconds.
fn after(
    task: &Task,
    kind: ErrorKind,
    ms: u64,
    prepare: impl Fn(&mut HistoryBuilder),
) -> Vec<(Violation, u64)> {
    let mut builder = HistoryBuilder::new();
    prepare(&mut builder);
    let op = builder.begin(1, task.clone(), 20_000);
    builder.end(op, failed(kind), None, 20_000 + ms);
    builder.found()
}

#[test]
fn a_wait_that_ends_early() {
    let lock = locking_within(WaitLimit::AtMost(100));
    let lease = Task::Lease {
        permits: 1,
        semaphore: "leader".to_owned(),
        renewed: false,
        lease_ms: 1000,
        wait: WaitLimit::AtMost(100),
    };
    for (task, ms) in [
        (SLOT, 100),
        (lock, 100),
        (lease, 100),
        (Task::Pinned { lease_ms: 300 }, 1000),
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
        let fault = |builder: &mut HistoryBuilder| builder.fault(kind, None, 20_005, 20_600);
        let found = after(&SLOT, ErrorKind::TimedOut, 50, fault);
        if kind == FaultKind::ClockAhead {
            assert_eq!(found, []);
        } else {
            assert_eq!(found, [(EarlyTimeouts, 1)], "{kind:?}");
        }
    }
}

/// How a wait ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Entered,
    Refused,
    TimedOut,
}

/// What is found when a task that began at 20 s ends its wait in this way after a time in milliseconds.
fn waited(
    task: &Task,
    end: End,
    ms: u64,
    prepare: impl Fn(&mut HistoryBuilder),
) -> Vec<(Violation, u64)> {
    let mut builder = HistoryBuilder::new();
    builder.limits.longest = Duration::from_secs(60);
    prepare(&mut builder);
    let op = builder.begin(1, task.clone(), 20_000);
    let until = 20_000 + ms;
    match end {
        End::Entered => {
            let slot = matches!(task, Task::Lease { .. } | Task::Pinned { .. });
            builder.enter(op, slot.then_some((1, 100)), until);
            // Another attempt does not wait again, and what it does then has no limit.
            builder.enter(op, slot.then_some((1, 100)), until + 9000);
            builder.end(op, Outcome::RolledBack, Some(until + 9000), until + 9000);
        }
        End::Refused => builder.end(op, Outcome::Refused, None, until),
        End::TimedOut => builder.end(op, failed(ErrorKind::TimedOut), None, until),
    }
    builder.found()
}

fn late(found: &[(Violation, u64)]) -> bool {
    assert!(
        found.is_empty() || found == [(LateTimeouts, 1)],
        "{found:?}"
    );
    !found.is_empty()
}

#[test]
fn grant_or_refusal_in_time_is_not_late() {
    let lock = locking_within;
    let lease = |renewed, wait| Task::Lease {
        permits: 1,
        semaphore: "leader".to_owned(),
        renewed,
        lease_ms: 100_000,
        wait,
    };
    let slot = |wait| Task::Slot { permits: 1, wait };
    let pinned = Task::Pinned { lease_ms: 100_000 };
    let (no, some) = (WaitLimit::No, WaitLimit::AtMost(100));
    for (task, limit, end) in [
        (lock(no), 0, End::Entered),
        (lock(no), 0, End::Refused),
        (lock(some), 100, End::Entered),
        (lease(true, no), 0, End::Entered),
        (lease(false, no), 0, End::Refused),
        (lease(false, some), 100, End::Entered),
        (slot(no), 0, End::Entered),
        (slot(no), 0, End::Refused),
        (slot(some), 100, End::Entered),
        (pinned, 1000, End::Entered),
    ] {
        let late_after = |ms| late(&waited(&task, end, ms, |_| ()));
        // A guard is granted its slot on a connection that the renewer takes from the pool.
        let slack = if task.has_guard() { 10_000 } else { 5000 };
        assert!(!late_after(limit + slack), "{task:?} {end:?}");
        assert!(late_after(limit + slack + 1), "{task:?} {end:?}");
    }
    for task in [lock(WaitLimit::Forever), Task::Pass { sequence: 1 }] {
        assert!(!late(&waited(&task, End::Entered, 30_000, |_| ())));
    }
}

/// What is found when this client's operation is to wait for 100 ms, gets a connection after a time, and ends after another.
fn connected(client: Client, connection_ms: u64, end: End, ms: u64) -> Vec<(Violation, u64)> {
    let mut builder = HistoryBuilder::new();
    builder.limits.longest = Duration::from_secs(60);
    let op = builder.begin_with(client, 1, SLOT, 20_000);
    let at = at(20_000 + connection_ms);
    builder.record(1, Record::Connected { op, at });
    let until = 20_000 + ms;
    if let End::Entered = end {
        builder.enter(op, None, until);
        builder.end(op, Outcome::RolledBack, Some(until), until);
    } else {
        builder.end(op, failed(ErrorKind::TimedOut), None, until);
    }
    builder.found()
}

#[test]
fn wait_begins_with_its_connection() {
    for end in [End::TimedOut, End::Entered] {
        assert_eq!(connected(Client::R2d2, 4000, end, 9100), []);
        let found = connected(Client::R2d2, 4000, end, 9101);
        assert_eq!(found, [(LateTimeouts, 1)]);
    }
    let found = connected(Client::R2d2, 4000, End::TimedOut, 4098);
    assert_eq!(found, [(EarlyTimeouts, 1)]);
}

#[test]
fn requests_of_a_lock_pool_wait_for_its_connections() {
    let waited = |ms: u64| {
        let mut builder = HistoryBuilder::new();
        builder.limits.longest = Duration::from_secs(60);
        let op = builder.begin_with(Client::Bb8LockPool, 1, SLOT, 20_000);
        builder.end(op, failed(ErrorKind::TimedOut), None, 20_000 + ms);
        builder.found()
    };
    assert_eq!(waited(10_100), []);
    assert_eq!(waited(10_101), [(LateTimeouts, 1)]);
}

#[test]
fn late_grant_of_a_killed_process() {
    let mut builder = HistoryBuilder::new();
    let op = builder.begin(1, SLOT, 20_000);
    builder.enter(op, None, 25_101);
    builder.kill(1);
    assert_eq!(builder.found(), [(LateTimeouts, 1)]);
}

#[test]
fn a_fault_of_its_own_or_of_all_lets_a_wait_end_late() {
    for kind in FaultKind::ALL {
        let cuts = kind.cuts();
        let disturbs = !matches!(
            kind,
            FaultKind::Snapshot | FaultKind::ClockAhead | FaultKind::ClockBack
        );
        for (worker, from, until, excused) in [
            (Some(1), 6000, 6999, false),
            (Some(1), 6000, 7000, cuts),
            (Some(1), 20_005, 20_600, disturbs),
            (None, 6000, 7000, cuts),
            (None, 20_005, 20_600, disturbs),
            (Some(2), 20_005, 20_600, false),
            (None, 26_001, 26_002, false),
        ] {
            for end in [End::TimedOut, End::Entered] {
                let fault = |builder: &mut HistoryBuilder| builder.fault(kind, worker, from, until);
                let found = late(&waited(&SLOT, end, 6000, fault));
                assert_eq!(found, !excused, "{kind:?} of {worker:?} from {from}");
            }
        }
    }
}

#[test]
fn without_a_server_the_pause_of_another_holds_up_grants() {
    let lease = Task::Lease {
        permits: 1,
        semaphore: "leader".to_owned(),
        renewed: false,
        lease_ms: 100_000,
        wait: WaitLimit::AtMost(100),
    };
    let lock = locking_within(WaitLimit::AtMost(100));
    for (task, end, kind, has_server, excused) in [
        (&lease, End::Entered, FaultKind::Pause, false, true),
        (&lease, End::Entered, FaultKind::Pause, true, false),
        (&lease, End::Entered, FaultKind::Kill, false, false),
        (&lease, End::TimedOut, FaultKind::Pause, false, false),
        (&SLOT, End::Entered, FaultKind::Pause, false, true),
        (&lock, End::Entered, FaultKind::Pause, false, false),
    ] {
        let found = waited(task, end, 6000, |builder| {
            builder.evidence.has_server = has_server;
            builder.fault(kind, Some(2), 20_005, 20_600);
        });
        assert_eq!(late(&found), !excused, "{task:?} {end:?} {kind:?}");
    }
}
