//! Transactions whose closures ignore an error, and continue.

use std::thread;

use diesel::QueryResult;
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel_locks::IsolationLevel;
use diesel_locks::prelude::*;
use torture_history::{
    ErrorKind, InjectedFault, Outcome, Request, Row, TransactionMethod, workload_spec,
};

use super::contending_session::ContendingSession;
use super::context::WorkerContext;
use super::errors::{Failure, FailureExt, IntentionalRollback, classify_on, classify_result};
use super::operation::Operation;
use super::workload::Workload;
use crate::engine::Engine;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// As in the task.
pub(crate) struct Plan {
    pub(crate) method: TransactionMethod,
    pub(crate) injected: InjectedFault,
    pub(crate) nested: bool,
    pub(crate) request: Request,
    pub(crate) counters: [u32; 2],
}

/// The lock on a counter of those that only transactions take in which something goes wrong.
pub(crate) fn lock(counter: u32) -> LockRequest {
    LockRequest::new(ObjectId::new("Fault", counter))
}

/// A transaction in which objects can be locked.
pub(crate) fn transaction<C: Store>(context: &WorkerContext<C>) -> TransactionOptions {
    match context.job.engine {
        Engine::Sqlite => TransactionOptions::new(),
        Engine::Postgres | Engine::Mysql => {
            TransactionOptions::new().isolation(IsolationLevel::ReadCommitted)
        }
    }
}

/// Locks, writes, ignores an error, continues, and usually returns `Ok`.
pub(crate) fn ignore_fault<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    plan: &Plan,
) -> Result<Outcome, Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let result = thread::scope(|scope| {
        let mut contending_session = None;
        let start = |waits| ContendingSession::start(scope, context, operation.op, waits);
        let mut section = |conn: &mut C| -> Result<(), Failure> {
            let mut closure = Closure {
                operation,
                workload,
                plan,
            };
            closure.run(conn, |waits| contending_session.insert(start(waits)).wait())
        };
        let result = match plan.method {
            TransactionMethod::Locked => {
                conn.with_object_lock(lock(plan.counters[0]), &mut section)
            }
            TransactionMethod::Transaction => {
                conn.run_transaction(transaction(context), &mut section)
            }
            TransactionMethod::Diesel => in_diesel_transaction(conn, |conn| {
                // Diesel's ROLLBACK fails where there is nothing to roll back, and Diesel returns that error.
                let mut first = None;
                let result = conn.transaction(|conn| {
                    section(conn).map_err(|failure| {
                        first = Some(failure);
                        IntentionalRollback.into()
                    })
                });
                first.map_or(result, Err)
            }),
        };
        // The second session waits for it.
        drop(contending_session);
        result
    });
    let result = classify_result(conn, result);
    if context.job.sabotage == Some(Sabotage::LossAsSuccess)
        && result
            .as_ref()
            .is_err_and(|failure| failure.error_kind() == ErrorKind::Aborted)
    {
        return Ok(Outcome::Done);
    }
    result?;
    Ok(Outcome::Done)
}

/// Around a transaction that is not the library's: its level has to be the session's.
pub(crate) fn in_diesel_transaction<C: Store>(
    conn: &mut C,
    run: impl FnOnce(&mut C) -> Result<(), Failure>,
) -> Result<(), Failure> {
    conn.batch_execute(C::BEFORE_TRANSACTION)?;
    let result = run(conn);
    let after = conn.batch_execute(C::AFTER_TRANSACTION);
    result?;
    Ok(after?)
}

struct Closure<'a> {
    operation: &'a Operation,
    workload: &'a mut Workload,
    plan: &'a Plan,
}

impl Closure<'_> {
    /// `invite`: a second session takes the row that will be wanted, and then waits for what was written, or not.
    fn run<C: Store>(&mut self, conn: &mut C, invite: impl FnOnce(bool)) -> Result<(), Failure> {
        let Plan {
            method, request, ..
        } = *self.plan;
        let [first, second] = self.plan.counters;
        if method != TransactionMethod::Locked {
            conn.lock_object(lock(first))?;
        }
        self.operation.entered(None)?;
        self.count(conn, first)?;
        self.step(conn, workload_spec::STEP_BEFORE)?;
        if request == Request::NumberBefore {
            self.draw(conn)?;
        }
        match self.plan.injected {
            InjectedFault::Deadlock => invite(true),
            InjectedFault::LockTimeout => invite(false),
            _ => {}
        }
        self.go_wrong(conn)?;

        if let Err(error) = self.step(conn, workload_spec::STEP_AFTER) {
            let kind = classify_on(conn, error).error_kind();
            self.note(conn, kind)?;
        }
        if matches!(request, Request::Lock | Request::LockAndNumber) {
            let granted = conn.lock_object(lock(second)).map_err(Failure::from);
            if self.granted(conn, granted)? {
                let counted = self.count(conn, second);
                self.went_on(conn, counted)?;
            }
        }
        if matches!(request, Request::Number | Request::LockAndNumber) {
            let granted = conn.next_number(&sequence()).map_err(Failure::from);
            let number = granted.as_ref().ok().copied();
            if self.granted(conn, granted)?
                && let Some(number) = number
            {
                let inserted = self.insert_pass(conn, number);
                self.went_on(conn, inserted)?;
            }
        }
        self.operation.leaves();
        if self.workload.percent(20) {
            return Err(IntentionalRollback.into());
        }
        Ok(())
    }

    /// What is to go wrong does, in a nested transaction or not; and is ignored.
    fn go_wrong<C: Store>(&mut self, conn: &mut C) -> Result<(), Failure> {
        if matches!(
            self.plan.injected,
            InjectedFault::Commit | InjectedFault::Rollback
        ) {
            // Before the statement, because the process may be killed after it.
            self.operation.fault_ignored(None, true)?;
        }
        let gone_wrong = if self.plan.nested {
            conn.transaction(|conn| self.injected(conn))
        } else {
            self.injected(conn)
        };
        if self.plan.injected == InjectedFault::LockTimeout {
            // It fails where the transaction is aborted.
            let _ = conn.batch_execute(C::DEFAULT_LOCK_TIMEOUT);
        }
        match gone_wrong {
            Err(error) => {
                let kind = classify_on(conn, error).error_kind();
                self.note(conn, kind)
            }
            Ok(())
                if matches!(
                    self.plan.injected,
                    InjectedFault::Deadlock | InjectedFault::LockTimeout
                ) =>
            {
                self.operation.wrote(Row::Step(workload_spec::STEP_WANTED))
            }
            Ok(()) => Ok(()),
        }
    }

    fn injected<C: Store>(&mut self, conn: &mut C) -> Result<(), Failure> {
        let op = self.operation.op;
        match self.plan.injected {
            InjectedFault::Deadlock => conn.insert_step(op, workload_spec::STEP_WANTED)?,
            InjectedFault::LockTimeout => {
                conn.batch_execute(C::SHORT_LOCK_TIMEOUT)?;
                conn.insert_step(op, workload_spec::STEP_WANTED)?;
            }
            InjectedFault::Duplicate => conn.insert_step(op, workload_spec::STEP_BEFORE)?,
            InjectedFault::DuplicateOrRollback => or_rollback(conn, op.0)?,
            InjectedFault::Commit => conn.batch_execute("COMMIT")?,
            InjectedFault::Rollback => conn.batch_execute("ROLLBACK")?,
            InjectedFault::LeftOpen => AnsiTransactionManager::begin_transaction(conn)?,
        }
        Ok(())
    }

    /// Notes an error that is ignored, and whether the transaction is still there.
    fn note<C: Store>(&self, conn: &mut C, kind: ErrorKind) -> Result<(), Failure> {
        let there = conn.has_step(self.operation.op, workload_spec::STEP_BEFORE);
        let is_lost = !matches!(there, Ok(true));
        self.operation.fault_ignored(Some(kind), is_lost)
    }

    /// Ignores an error of the last step too, unless only its caller knows whether it was committed.
    fn went_on<C: Store>(&self, conn: &mut C, result: Result<(), Failure>) -> Result<(), Failure> {
        let Err(error) = result.map_err(|error| classify_on(conn, error)) else {
            return Ok(());
        };
        self.note(conn, error.error_kind())?;
        if self.plan.method == TransactionMethod::Diesel {
            return Err(error);
        }
        Ok(())
    }

    /// Whether what was asked for was granted. What the library says is ignored too, if not always.
    fn granted<C: Store, T>(
        &mut self,
        conn: &mut C,
        granted: Result<T, Failure>,
    ) -> Result<bool, Failure> {
        let Err(error) = granted.map_err(|error| classify_on(conn, error)) else {
            self.operation.requested(None)?;
            return Ok(true);
        };
        self.operation.requested(Some(&error))?;
        self.note(conn, error.error_kind())?;
        if self.plan.method == TransactionMethod::Diesel || self.workload.percent(30) {
            return Err(error);
        }
        Ok(false)
    }

    fn count<C: Store>(&mut self, conn: &mut C, counter: u32) -> Result<(), Failure> {
        count(conn, self.operation, self.workload, counter)
    }

    fn step<C: Store>(&mut self, conn: &mut C, step: u32) -> Result<(), Failure> {
        conn.insert_step(self.operation.op, step)?;
        self.operation.wrote(Row::Step(step))
    }

    fn draw<C: Store>(&mut self, conn: &mut C) -> Result<(), Failure> {
        let number = conn.next_number(&sequence())?;
        self.insert_pass(conn, number)
    }

    fn insert_pass<C: Store>(&mut self, conn: &mut C, number: i64) -> Result<(), Failure> {
        let sequence = workload_spec::FAULT_SEQUENCE;
        conn.insert_pass(self.operation.op, sequence, number)?;
        self.operation.wrote(Row::Pass(sequence))
    }
}

/// Adds one to a counter whose lock it has.
pub(crate) fn count<C: Store>(
    conn: &mut C,
    operation: &Operation,
    workload: &mut Workload,
    counter: u32,
) -> Result<(), Failure> {
    let n = conn.read_counter(counter)?;
    workload.pause(2);
    conn.write_counter(operation.op, counter, n + 1)?;
    operation.wrote(Row::Counter(counter))
}

fn sequence() -> Sequence {
    Sequence::new(workload_spec::SEQUENCES_NAME).for_key(workload_spec::FAULT_SEQUENCE)
}

/// Inserts a row that is there, by a statement that rolls the transaction back. Digits: Diesel does not write it.
fn or_rollback<C: Store>(conn: &mut C, op: i64) -> QueryResult<()> {
    let step = workload_spec::STEP_BEFORE;
    conn.batch_execute(&format!(
        "INSERT OR ROLLBACK INTO torture_steps (op, step) VALUES ({op}, {step})"
    ))
}
