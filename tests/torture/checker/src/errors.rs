//! Which errors are expected, of whom, and why.

use torture_history::{ErrorKind, Moment, Outcome, Release, Task, WaitLimit};

use crate::fault_windows::{FaultWindows, RECOVERY_TIME};
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Limits, Violation};

/// When a kind of error is expected of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// At any time.
    Always,
    /// When connections of its worker's were cut while it was under way, or not long before.
    WhenCut,
    /// When the run's limits on statements are low.
    WhenLimited,
    /// Like `WhenLimited`, for statements after the requested lock was acquired.
    WhenLimitedInside,
    /// When its transaction could not be committed as a whole.
    AfterInjectedFault,
    /// When several nodes take writes: the first of two transactions that change a row ends the other.
    WithSeveralWriters,
    /// When several nodes take writes, and connections of its worker's were cut near it: the crate retries no conflict on a
    /// lost connection.
    WithSeveralWritersWhenCut,
    /// Never.
    Never,
}

/// The table of what is expected.
#[expect(
    clippy::match_same_arms,
    reason = "a line for each, with its own reason"
)]
fn expected(operation: &Operation<'_>, kind: ErrorKind) -> Expected {
    let task = operation.task;
    let wait = task.wait_limit();
    match (kind, task) {
        // At top level, a wait without a limit ends with the lock, whatever the session's limit is. The crate does not wait
        // for numbers and for rows of the application.
        (ErrorKind::TimedOut, _) if matches!(wait, Some(WaitLimit::AtMost(_))) => Expected::Always,
        // They wait in an open transaction: the session's limit ends deadlocks that the server does not detect.
        (ErrorKind::TimedOut, Task::IgnoreFault { .. } | Task::Panic { .. }) => {
            Expected::WhenLimited
        }
        // The application's own statements may wait for a row. What the crate waits for has its own limit, or none,
        // whatever the session's is; numbers are waited for as rows are, and a purge waits for nothing else.
        (
            ErrorKind::StatementTimedOut,
            Task::Pass { .. }
            | Task::Transfer { .. }
            | Task::SetPermits { .. }
            | Task::Purge
            | Task::IgnoreFault { .. },
        ) => Expected::WhenLimited,
        // It has ignored the error that says why.
        (ErrorKind::Aborted, Task::IgnoreFault { .. }) => Expected::AfterInjectedFault,
        // After ROLLBACK as text the session's isolation level applies, at which MariaDB 11.8 refuses a draw from a row that has
        // changed since the snapshot.
        (ErrorKind::Serialization, Task::IgnoreFault { .. }) => Expected::AfterInjectedFault,
        (ErrorKind::StatementTimedOut, _) => Expected::WhenLimitedInside,
        // Locks that are taken in an open transaction, where nothing can be tried again.
        (ErrorKind::Deadlock, Task::IgnoreFault { .. } | Task::Panic { .. }) => Expected::Always,
        // Two rows in any order, and higher isolation levels: tried again, but not for ever. All others take one
        // row, or several in the order of their ids, at READ COMMITTED.
        (
            ErrorKind::Deadlock | ErrorKind::Serialization,
            Task::Transfer { .. } | Task::Pass { .. },
        ) => Expected::Always,
        // Nothing of it is committed, and nothing tries it again.
        (
            ErrorKind::Deadlock | ErrorKind::Aborted,
            Task::Purge
            | Task::SetPermits { .. }
            | Task::Lock(_)
            | Task::Slot { .. }
            | Task::Pinned { .. }
            | Task::Pass { .. }
            | Task::Transfer { .. },
        ) => Expected::WithSeveralWriters,
        // A nested transaction hides the deadlock.
        (ErrorKind::Aborted, Task::Panic { .. }) => Expected::WithSeveralWriters,
        (ErrorKind::Deadlock, _) => Expected::WithSeveralWritersWhenCut,
        // Leases end while their holders are paused, or when the clock jumps; `leases.rs` knows which may.
        (
            ErrorKind::SlotLost,
            Task::Lease { .. }
            | Task::Pinned { .. }
            | Task::Asked { .. }
            | Task::Stuck { .. }
            | Task::Tick { .. },
        ) => Expected::Always,
        // By its own worker.
        (ErrorKind::Dropped, _) => Expected::Always,
        // Resources look at the fences of leases.
        (ErrorKind::Fenced, Task::Lease { .. } | Task::Tick { .. }) => Expected::Always,
        // It takes a connection for its write, for as long as the pool takes.
        (ErrorKind::Pool, Task::Tick { .. }) => Expected::WhenCut,
        // A guard takes no longer for a connection than for its slot, and a lock pool no longer than for its lock.
        (ErrorKind::Pool, _)
            if matches!(wait, Some(WaitLimit::AtMost(_)))
                && (task.has_guard() || operation.client.is_lock_pool()) =>
        {
            Expected::Always
        }
        // A pool is empty while new connections are refused, and its time-out passes while its process is stopped.
        (ErrorKind::Connection | ErrorKind::OutcomeUnknown | ErrorKind::Pool, _) => {
            Expected::WhenCut
        }
        _ => Expected::Never,
    }
}

/// Whether a task may be refused: if it does not wait. A wait with a limit times out instead.
fn may_be_refused(task: &Task) -> bool {
    task.wait_limit() == Some(WaitLimit::No)
}

/// Looks for errors that nothing explains.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, limits: &Limits, findings: &mut Findings) {
    let expectations = Expectations {
        // A process that continues finds that the server has ended its transactions.
        cuts: FaultWindows::of(run, &[], |kind| kind.cuts().then_some(RECOVERY_TIME)),
        has_server: evidence.has_server,
        statements_are_limited: limits.statements_are_limited,
        several_writers: limits.several_writers,
    };
    let mut judged = 0;
    for operation in &run.operations {
        judged += usize::from(expectations.have_no_excuse(operation));
        let unexpected = [
            expectations.unexpected_end(operation),
            expectations.unexpected_release(operation),
            expectations.unexpected_request(operation),
        ];
        for what in unexpected.into_iter().flatten() {
            findings.add(Violation::UnexpectedErrors, || {
                format!("{}: {what}", run.describe_operation(operation))
            });
        }
    }
    findings.judged_without_excuse(Violation::UnexpectedErrors, judged);
}

/// What the table's words mean in this run.
struct Expectations {
    cuts: FaultWindows,
    has_server: bool,
    statements_are_limited: bool,
    several_writers: bool,
}

impl Expectations {
    /// Whether an operation came back and nothing was cut near it.
    fn have_no_excuse(&self, operation: &Operation<'_>) -> bool {
        let end = operation.end;
        end.is_some_and(|end| {
            !self
                .cuts
                .overlaps(operation.worker, operation.began, end.at)
        })
    }

    /// What is wrong with how an operation ended.
    fn unexpected_end(&self, operation: &Operation<'_>) -> Option<String> {
        let end = operation.end?;
        match end.outcome {
            Outcome::Done | Outcome::RolledBack => None,
            Outcome::Refused => (!may_be_refused(operation.task))
                .then(|| "was refused, though it was willing to wait".to_owned()),
            Outcome::Failed { kind, text } => {
                (!self.explains(operation, *kind, end.at)).then(|| format!("{kind:?}: {text}"))
            }
        }
    }

    /// What is wrong with how it gave its slot back.
    fn unexpected_release(&self, operation: &Operation<'_>) -> Option<String> {
        let released = operation.released?;
        match released.release {
            Release::Failed { kind, text } => {
                // A release waits for no session.
                let explained =
                    *kind != ErrorKind::TimedOut && self.explains(operation, *kind, released.at);
                (!explained).then(|| format!("when given back, {kind:?}: {text}"))
            }
            // For `leases.rs`.
            Release::InTime | Release::Expired | Release::Lost => None,
        }
    }

    /// What is wrong with how it was refused what it asked for after something had gone wrong.
    fn unexpected_request(&self, operation: &Operation<'_>) -> Option<String> {
        operation.requested.iter().find_map(|requested| {
            let kind = requested.refused?;
            // For `losses.rs`.
            let is_left = kind == ErrorKind::TimedOut && operation.asks_for_its_own_lock();
            let is_explained = is_left || self.explains(operation, kind, requested.at);
            (!is_explained).then(|| format!("asked for something, {kind:?}"))
        })
    }

    fn explains(&self, operation: &Operation<'_>, kind: ErrorKind, at: Moment) -> bool {
        match expected(operation, kind) {
            Expected::Always => true,
            Expected::WhenCut => {
                (self.has_server || kind == ErrorKind::Pool)
                    && self.cuts.overlaps(operation.worker, operation.began, at)
            }
            Expected::WhenLimited => self.statements_are_limited,
            Expected::WhenLimitedInside => {
                self.statements_are_limited && operation.entered().is_some()
            }
            Expected::AfterInjectedFault => operation.has_injected_fault(),
            Expected::WithSeveralWriters => self.several_writers,
            Expected::WithSeveralWritersWhenCut => {
                self.several_writers && self.cuts.overlaps(operation.worker, operation.began, at)
            }
            Expected::Never => false,
        }
    }
}
