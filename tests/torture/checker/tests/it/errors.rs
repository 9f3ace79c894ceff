//! Which errors are expected.

use torture_checker::Violation::UnexpectedErrors;
use torture_history::{
    Client, ErrorKind, FaultKind, InjectedFault, Outcome, Release, Task, TransactionMethod,
    WaitLimit,
};

use crate::history_builder::{HistoryBuilder, failed, ignoring_fault, locking_within, panicking};

const KINDS: [ErrorKind; 12] = [
    ErrorKind::Held,
    ErrorKind::TimedOut,
    ErrorKind::StatementTimedOut,
    ErrorKind::Deadlock,
    ErrorKind::Serialization,
    ErrorKind::Aborted,
    ErrorKind::SlotLost,
    ErrorKind::Fenced,
    ErrorKind::Pool,
    ErrorKind::Connection,
    ErrorKind::OutcomeUnknown,
    ErrorKind::Other,
];

fn lease(wait: WaitLimit) -> Task {
    let (semaphore, renewed, lease_ms) = ("leader".to_owned(), true, 1000);
    Task::Lease {
        permits: 1,
        semaphore,
        renewed,
        lease_ms,
        wait,
    }
}

/// Which kinds of errors of a task are no violation.
fn expected(task: &Task, prepare: impl Fn(&mut HistoryBuilder)) -> Vec<ErrorKind> {
    expected_of(Client::R2d2, task, prepare)
}

/// As [`expected`], of this client.
fn expected_of(
    client: Client,
    task: &Task,
    prepare: impl Fn(&mut HistoryBuilder),
) -> Vec<ErrorKind> {
    let is_expected = |kind: &ErrorKind| {
        let mut builder = HistoryBuilder::new();
        prepare(&mut builder);
        let op = builder.begin_with(client, 1, task.clone(), 20_000);
        // Some slots are waited for longer.
        let end = match task {
            Task::Pinned { .. } => 21_000,
            Task::Tick { .. } => 21_500,
            _ => 20_010,
        };
        builder.end(op, failed(*kind), None, end);
        is_explained(&builder)
    };
    KINDS.into_iter().filter(is_expected).collect()
}

/// Whether the error in it is; nothing else is wrong with it.
fn is_explained(builder: &HistoryBuilder) -> bool {
    let found = builder.found();
    assert!(
        found.is_empty() || found == [(UnexpectedErrors, 1)],
        "{found:?}"
    );
    found.is_empty()
}

#[test]
fn errors_while_no_fault_is_injected() {
    use ErrorKind::{Deadlock, Fenced, Pool, Serialization, SlotLost, TimedOut};

    let calm = |task| expected(&task, |_| ());
    assert_eq!(calm(locking_within(WaitLimit::Forever)), []);
    // A refusal is no error.
    assert_eq!(calm(locking_within(WaitLimit::No)), []);
    assert_eq!(calm(locking_within(WaitLimit::AtMost(10))), [TimedOut]);
    assert_eq!(calm(lease(WaitLimit::Forever)), [SlotLost, Fenced]);
    assert_eq!(
        calm(lease(WaitLimit::AtMost(10))),
        [TimedOut, SlotLost, Fenced, Pool]
    );
    let wait = WaitLimit::No;
    assert_eq!(calm(Task::Slot { permits: 1, wait }), []);
    assert_eq!(calm(Task::Pinned { lease_ms: 9 }), [TimedOut, SlotLost]);
    let tick = Task::Tick { lease_ms: 9 };
    assert_eq!(calm(tick), [TimedOut, SlotLost, Fenced]);
    assert_eq!(calm(Task::Pass { sequence: 1 }), [Deadlock, Serialization]);
    let (from, to) = (100, 101);
    assert_eq!(calm(Task::Transfer { from, to }), [Deadlock, Serialization]);
    // It skips what is held, so no error is expected.
    assert_eq!(calm(Task::Purge), []);
}

#[test]
fn errors_of_a_lock_pool_while_no_fault_is_injected() {
    use ErrorKind::{Pool, TimedOut};

    let calm = |wait| expected_of(Client::DeadpoolLockPool, &locking_within(wait), |_| ());
    assert_eq!(calm(WaitLimit::Forever), []);
    assert_eq!(calm(WaitLimit::No), []);
    assert_eq!(calm(WaitLimit::AtMost(10)), [TimedOut, Pool]);
}

/// Worker 1 is at it from 20 s to 20.01 s in a run in which this fault was from one millisecond to another.
fn with_fault(kind: FaultKind, worker: Option<u32>, from: u64, until: u64) -> Vec<ErrorKind> {
    let task = locking_within(WaitLimit::Forever);
    expected(&task, |builder| builder.fault(kind, worker, from, until))
}

#[test]
fn errors_while_connections_are_cut() {
    use ErrorKind::{Connection, OutcomeUnknown, Pool};

    for kind in FaultKind::ALL {
        let cut: &[ErrorKind] = if kind.cuts() {
            &[Pool, Connection, OutcomeUnknown]
        } else {
            &[]
        };
        for worker in [None, Some(1)] {
            assert_eq!(with_fault(kind, worker, 20_005, 20_006), cut, "{kind:?}");
            assert_eq!(with_fault(kind, worker, 20_010, 30_000), cut, "{kind:?}");
            assert_eq!(with_fault(kind, worker, 6000, 7000), cut, "{kind:?}");
            assert_eq!(with_fault(kind, worker, 6000, 6999), [], "{kind:?} before");
            assert_eq!(
                with_fault(kind, worker, 20_011, 30_000),
                [],
                "{kind:?} later"
            );
        }
        assert_eq!(with_fault(kind, Some(2), 20_005, 20_006), [], "{kind:?}");
    }
}

#[test]
fn without_a_server_no_connection_is_lost() {
    let task = locking_within(WaitLimit::Forever);
    let file = |prepare: fn(&mut HistoryBuilder)| {
        expected(&task, |builder| {
            builder.evidence.has_server = false;
            prepare(builder);
        })
    };
    assert_eq!(file(|_| ()), []);
    let paused = file(|builder| builder.fault(FaultKind::Pause, Some(1), 20_001, 20_005));
    assert_eq!(paused, [ErrorKind::Pool]);
}

#[test]
fn errors_of_a_release() {
    use ErrorKind::{Connection, Fenced, OutcomeUnknown, Pool, SlotLost, StatementTimedOut};

    let expected_at_release = |prepare: fn(&mut HistoryBuilder)| -> Vec<ErrorKind> {
        let is_expected = |kind: &ErrorKind| {
            let mut builder = HistoryBuilder::new();
            prepare(&mut builder);
            let task = lease(WaitLimit::Forever);
            let op = builder.begin(1, task, 20_000);
            builder.enter(op, Some((1, 100)), 20_001);
            let (kind, text) = (*kind, String::new());
            builder.release(op, true, Release::Failed { kind, text }, 20_009);
            builder.end(op, Outcome::Done, Some(20_005), 20_010);
            builder.write(op, "leader", (1, 100));
            is_explained(&builder)
        };
        KINDS.into_iter().filter(is_expected).collect()
    };
    // These two are reported by other errors.
    assert_eq!(expected_at_release(|_| ()), [SlotLost, Fenced]);
    assert_eq!(
        expected_at_release(|builder| builder.fault(FaultKind::Reset, Some(1), 20_001, 20_002)),
        [SlotLost, Fenced, Pool, Connection, OutcomeUnknown]
    );
    assert_eq!(
        expected_at_release(|builder| builder.limits.statements_are_limited = true),
        [StatementTimedOut, SlotLost, Fenced]
    );
}

#[test]
fn statement_timeouts() {
    use ErrorKind::{Deadlock, Serialization, StatementTimedOut};

    let limited =
        |task: &Task| expected(task, |builder| builder.limits.statements_are_limited = true);
    let inside = |task: &Task, is_limited: bool| {
        let mut builder = HistoryBuilder::new();
        builder.limits.statements_are_limited = is_limited;
        let slot = matches!(task, Task::Lease { .. } | Task::Pinned { .. });
        let op = builder.begin(1, task.clone(), 20_000);
        builder.enter(op, slot.then_some((1, 100)), 20_001);
        builder.end(op, failed(StatementTimedOut), Some(20_002), 20_003);
        is_explained(&builder)
    };
    for task in [
        locking_within(WaitLimit::Forever),
        locking_within(WaitLimit::No),
        locking_within(WaitLimit::AtMost(10)),
        lease(WaitLimit::Forever),
        lease(WaitLimit::No),
        Task::Slot {
            permits: 1,
            wait: WaitLimit::No,
        },
        Task::Pinned { lease_ms: 1000 },
    ] {
        // The crate's own wait has another limit, or none.
        assert!(!limited(&task).contains(&StatementTimedOut), "{task:?}");
        assert!(inside(&task, true), "{task:?}");
        assert!(!inside(&task, false), "{task:?}");
    }
    assert_eq!(limited(&Task::Purge), [StatementTimedOut]);
    let (from, to) = (100, 101);
    for task in [Task::Pass { sequence: 1 }, Task::Transfer { from, to }] {
        assert_eq!(limited(&task), [StatementTimedOut, Deadlock, Serialization]);
    }
}

#[test]
fn wait_without_a_limit_ends_in_an_open_transaction_only() {
    let tasks = [
        ignoring_fault(TransactionMethod::Transaction, InjectedFault::Duplicate),
        panicking(),
    ];
    let ends = |task: &Task, is_limited: bool| {
        let prepare = |builder: &mut HistoryBuilder| {
            builder.limits.statements_are_limited = is_limited;
        };
        expected(task, prepare).contains(&ErrorKind::TimedOut)
    };
    for task in tasks {
        assert!(ends(&task, true), "{task:?}");
        assert!(!ends(&task, false), "{task:?}");
    }
    assert!(!ends(&locking_within(WaitLimit::Forever), true));
}

#[test]
fn refusals() {
    let (from, to) = (100, 101);
    for (task, allowed) in [
        (locking_within(WaitLimit::No), true),
        (locking_within(WaitLimit::AtMost(7)), false),
        (locking_within(WaitLimit::Forever), false),
        (lease(WaitLimit::No), true),
        (lease(WaitLimit::AtMost(7)), false),
        (lease(WaitLimit::Forever), false),
        (
            Task::Slot {
                permits: 1,
                wait: WaitLimit::No,
            },
            true,
        ),
        (Task::Pinned { lease_ms: 9 }, false),
        (Task::Pass { sequence: 1 }, false),
        (Task::Transfer { from, to }, false),
        (Task::Purge, false),
    ] {
        let mut builder = HistoryBuilder::new();
        let op = builder.begin(1, task, 1000);
        builder.end(op, Outcome::Refused, None, 1010);
        if allowed {
            builder.assert_no_violations();
        } else {
            builder.finds(&[(UnexpectedErrors, 1)]);
        }
    }
}

#[test]
fn intentional_rollback_is_no_error() {
    let mut builder = HistoryBuilder::new();
    let op = builder.begin(1, Task::Pass { sequence: 1 }, 1000);
    builder.end(op, Outcome::RolledBack, None, 1010);
    builder.assert_no_violations();
}

#[test]
fn transactions_on_several_nodes_end_each_other() {
    let wait = WaitLimit::Forever;
    for (task, is_ended) in [
        (locking_within(wait), true),
        (Task::Slot { permits: 1, wait }, true),
        (Task::Purge, true),
        (lease(wait), false),
    ] {
        for several in [false, true] {
            let kinds = expected(&task, |builder| builder.limits.several_writers = several);
            let is_expected = kinds.contains(&ErrorKind::Deadlock);
            assert_eq!(is_expected, is_ended && several, "{task:?}");
        }
    }
    for several in [false, true] {
        let kinds = expected(&panicking(), |builder| {
            builder.limits.several_writers = several;
        });
        assert_eq!(kinds.contains(&ErrorKind::Aborted), several);
    }
}
