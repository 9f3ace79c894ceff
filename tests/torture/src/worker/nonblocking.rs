//! Threads that use connections of diesel-async, and drop futures.
//!
//! Each has a runtime and a pool for a number of operations. The future of the last of them may be dropped by the end of the
//! runtime; then there is a new one, with a new pool.

mod drops;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};

use super::context::WorkerContext;
use super::workload::Workload;
use crate::async_store::AsyncStore;
use crate::engine::Engine;
use crate::store::Store;

use drops::{Attempt, Ending};

/// The connections of a pool. An operation uses one; the last one may still be closing.
const CONNECTIONS: usize = 2;

/// Does one task after the other.
pub(super) fn serve<C: Store>(context: &Arc<WorkerContext<C>>, number: u32) -> Result<()> {
    let thread = context.job.threads + number;
    let mut workload = Workload::new(&context.job, thread);
    while !context.is_over.load(Ordering::SeqCst) {
        serve_with_runtime(context, &mut workload, thread)?;
    }
    Ok(())
}

/// Does some tasks with one runtime.
fn serve_with_runtime<C: Store>(
    context: &Arc<WorkerContext<C>>,
    workload: &mut Workload,
    thread: u32,
) -> Result<()> {
    let mut runtime = Some(runtime(context.job.engine, workload)?);
    let connections = <C::Async as AsyncStore>::pool(&context.job.url, CONNECTIONS)?;
    let operations = workload.number(5..40);
    for number in (0..operations).rev() {
        let Some(running) = runtime.take() else {
            break;
        };
        if context.is_over.load(Ordering::SeqCst) {
            break;
        }
        let task = workload.async_task();
        let ending = if context.job.drops {
            Ending::draw(workload, number == 0)
        } else {
            Ending::Never
        };
        let attempt = Attempt {
            context: Arc::clone(context),
            connections: Arc::clone(&connections),
            operation: Arc::new(context.begin(thread, &task)?),
            plan: Arc::new(tasks::Plan::draw(workload, task)),
        };
        let operation = Arc::clone(&attempt.operation);
        let (result, left) = attempt.run(running, ending)?;
        runtime = left;
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
