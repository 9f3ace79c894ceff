//! Threads that use connections of diesel-async, and drop futures.
//!
//! Each has a runtime and a pool for a number of operations. The future of the last of them may be dropped by the end of the
//! runtime; then there is a new one, with a new pool of another kind. In each second runtime, tasks share a lock pool.

mod drops;
mod lock_pool;
mod sections;
mod service;
mod tasks;
pub(super) mod ticks;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};
use torture_history::Task;

use super::context::WorkerContext;
use super::pool::settings;
use super::workload::Workload;
use crate::async_pools::PoolKind;
use crate::async_store::AsyncStore;
use crate::engine::Engine;
use crate::sabotage::Sabotage;
use crate::store::Store;

use drops::{Attempt, Ending};

/// The connections of a pool. An operation uses one, and a tick two more; the last one may still be closing.
const CONNECTIONS: u32 = 4;

/// How long the end of a runtime may take: it waits for statements on SQLite.
const SHUTDOWN: Duration = Duration::from_secs(40);

/// What a thread does with one runtime.
struct Round {
    pool: PoolKind,
    /// The number of the thread, and of the first of its tasks.
    thread: u32,
}

impl Round {
    /// All kinds, and whether tasks share a lock pool.
    const KINDS: [(PoolKind, bool); 4] = [
        (PoolKind::Deadpool, false),
        (PoolKind::Bb8, true),
        (PoolKind::Bb8, false),
        (PoolKind::Deadpool, true),
    ];
}

/// Does one task after the other.
pub(super) fn serve<C: Store>(context: &Arc<WorkerContext<C>>, number: u32) -> Result<()> {
    let job = &context.job;
    let thread = job.threads + number * service::HANDLERS;
    let mut workload = Workload::new(job, thread);
    // All kinds are at work at the same time, in different threads.
    let first = usize::try_from(job.process * job.async_threads + number)?;
    for (pool, shares_lock_pool) in Round::KINDS
        .into_iter()
        .cycle()
        .skip(first % Round::KINDS.len())
    {
        if context.is_over() {
            break;
        }
        let round = Round { pool, thread };
        let runtime = runtime(job.engine, &mut workload)?;
        if shares_lock_pool {
            service::serve(context, &mut workload, runtime, &round)?;
        } else {
            serve_alone(context, &mut workload, runtime, &round)?;
        }
    }
    Ok(())
}

/// Does some tasks with one runtime, one after the other.
fn serve_alone<C: Store>(
    context: &Arc<WorkerContext<C>>,
    workload: &mut Workload,
    runtime: Runtime,
    round: &Round,
) -> Result<()> {
    let connections = {
        let _runtime = runtime.enter();
        <C::Async as AsyncStore>::pool(
            &context.job.url,
            settings::<C>(&context.job),
            round.pool,
            CONNECTIONS,
        )?
    };
    let mut runtime = Some(runtime);
    let operations = workload.number(5..40);
    for number in (0..operations).rev() {
        let Some(running) = runtime.take() else {
            break;
        };
        if context.is_over() {
            break;
        }
        let mut task = workload.async_task();
        // A tick uses several connections, and would wait for the transaction that one of them has left open.
        while context.job.sabotage == Some(Sabotage::NoRollbackOnDrop)
            && matches!(task, Task::Tick { .. })
        {
            task = workload.async_task();
        }
        let client = round.pool.connection();
        let attempt = Attempt {
            context: Arc::clone(context),
            connections: Arc::clone(&connections),
            locks: None,
            operation: Arc::new(context.begin(round.thread, client, &task)?),
            plan: Arc::new(tasks::Plan::draw(workload, client, task)),
        };
        let operation = Arc::clone(&attempt.operation);
        let result = if !context.job.drops {
            running.block_on(attempt.run(Ending::Never))
        } else if number > 0 {
            running.block_on(attempt.run(Ending::draw(workload)))
        } else if let Some(result) = attempt.run_briefly(&running, Ending::time(workload)) {
            result
        } else {
            shut_down(running);
            context.end(&operation, attempt.after_shutdown()?)?;
            break;
        };
        runtime = Some(running);
        workload.pause(context.end(&operation, result)?);
    }
    Ok(())
}

/// With one thread or two. On SQLite with two: a pool's own statement may be dropped, which waits, and panics on one thread.
fn runtime(engine: Engine, workload: &mut Workload) -> Result<Runtime> {
    let mut builder = if engine == Engine::Sqlite || workload.percent(50) {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    } else {
        Builder::new_current_thread()
    };
    Ok(builder.enable_all().build()?)
}

/// Ends a runtime, with the futures in it.
fn shut_down(runtime: Runtime) {
    runtime.shutdown_timeout(SHUTDOWN);
}
