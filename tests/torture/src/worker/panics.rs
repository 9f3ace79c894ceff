//! Closures that panic while they hold a lock, in processes that catch that, as web servers do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::anyhow;
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel_locks::prelude::*;
use torture_history::{ErrorKind, Outcome, Row, TransactionMethod, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, FailureExt, classify_result};
use super::ignored_faults;
use super::locks;
use super::operation::Operation;
use super::workload::Workload;
use crate::engine::Engine;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// What closures panic with.
struct ByIntent;

/// Panics in a transaction, writes with the same connection after it, and asks for the lock with another.
pub(crate) fn panic<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    method: TransactionMethod,
    counter: u32,
    depth: u32,
) -> Result<Outcome, Failure> {
    let op = operation.op;
    let own = ObjectId::new("Panic", op.0);
    let locks = || LockRequest::all([ObjectId::new("Fault", counter), own.clone()]);
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let mut section = |conn: &mut C| -> Result<(), Failure> {
        if method != TransactionMethod::Locked {
            conn.lock_object(locks())?;
        }
        operation.entered(None)?;
        ignored_faults::count(conn, operation, workload, counter)?;
        conn.insert_step(op, workload_spec::STEP_BEFORE)?;
        inside(conn, operation, depth)
    };
    let is_sabotaged = context.job.sabotage == Some(Sabotage::LockAfterPanic);
    let caught = catch_unwind(AssertUnwindSafe(|| match method {
        _ if is_sabotaged => ignored_faults::in_diesel_transaction(conn, |conn| {
            roll_back_one_level(conn, |conn| {
                if method == TransactionMethod::Locked {
                    conn.lock_object(locks())?;
                }
                section(conn)
            })
        }),
        TransactionMethod::Locked => conn.with_object_lock(locks(), section),
        TransactionMethod::Transaction | TransactionMethod::Diesel => {
            conn.run_transaction(ignored_faults::transaction(context), section)
        }
    }));
    match caught {
        Err(panic) if panic.is::<ByIntent>() => {}
        // The process ends.
        Err(panic) => resume_unwind(panic),
        Ok(returned) => {
            classify_result(conn, returned)?;
            return Err(anyhow!(
                "a closure has panicked, and its caller was told Ok"
            ));
        }
    }

    let written = conn.insert_step(op, workload_spec::STEP_OUTSIDE);
    let mut requested = Ok(());
    if written.is_ok() {
        operation.wrote(Row::Step(workload_spec::STEP_OUTSIDE))?;
        // SQLite's lock is the write lock, which this connection has had since. The row shows whether it still has it.
        if context.job.engine != Engine::Sqlite {
            requested = locks::is_free(context, own);
            operation.requested(requested.as_ref().err())?;
        }
    }
    let written = written.map_err(Failure::from);
    if is_sabotaged {
        // That a transaction is left open is to be found by what comes of it.
        written?;
    } else {
        classify_result(conn, written)?;
    }
    match requested {
        Err(failure) if failure.error_kind() != ErrorKind::TimedOut => Err(failure),
        _ => Ok(Outcome::Done),
    }
}

/// Panics in `depth` transactions inside of this one.
fn inside<C: Store>(conn: &mut C, operation: &Operation, depth: u32) -> Result<(), Failure> {
    if depth == 0 {
        // Without the hook, by which processes of this program end.
        resume_unwind(Box::new(ByIntent));
    }
    conn.transaction(|conn| {
        conn.insert_step(operation.op, workload_spec::STEP_BEFORE + 10 * depth)?;
        inside(conn, operation, depth - 1)
    })
}

/// Sabotage: one level is rolled back, whatever is open.
fn roll_back_one_level<C: Store>(
    conn: &mut C,
    work: impl FnOnce(&mut C) -> Result<(), Failure>,
) -> Result<(), Failure> {
    AnsiTransactionManager::begin_transaction_sql(conn, C::BEGIN)?;
    let outcome = catch_unwind(AssertUnwindSafe(|| work(conn)));
    AnsiTransactionManager::rollback_transaction(conn)?;
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}
