//! Tasks of one runtime that share a lock pool, as the handlers of a service do.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::drops::{Attempt, Ending};
use super::{Round, lock_pool, shut_down, tasks};
use crate::async_pools::{AsyncConnections, AsyncLocks, PoolKind};
use crate::async_store::AsyncStore;
use crate::store::Store;
use crate::worker::context::WorkerContext;
use crate::worker::exit_on_error;
use crate::worker::pool::settings;
use crate::worker::workload::Workload;

/// How many tasks share a lock pool: more than it may borrow connections.
pub(super) const HANDLERS: u32 = 6;

/// What the tasks share.
struct Service<C: Store> {
    context: Arc<WorkerContext<C>>,
    pool: PoolKind,
    connections: Arc<dyn AsyncConnections<C::Async>>,
    locks: Arc<dyn AsyncLocks<C::Async>>,
    /// The first task has done its operations.
    is_over: AtomicBool,
    /// The runtime ends.
    is_shut_down: AtomicBool,
}

/// The operation of a task that is running.
type Running<C> = Arc<Mutex<Option<Attempt<C>>>>;

/// Does some operations with one runtime. The futures of the last ones may be dropped by its end.
pub(super) fn serve<C: Store>(
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
            lock_pool::CONNECTIONS,
        )?
    };
    let service = Arc::new(Service {
        context: Arc::clone(context),
        pool: round.pool,
        locks: connections.lock_pool(),
        connections,
        is_over: AtomicBool::new(false),
        is_shut_down: AtomicBool::new(false),
    });
    let mut handlers = Vec::new();
    let mut running: Vec<Running<C>> = Vec::new();
    for number in 0..HANDLERS {
        let handler = Handler {
            service: Arc::clone(&service),
            thread: round.thread + number,
            running: Running::default(),
        };
        running.push(Arc::clone(&handler.running));
        let operations = (number == 0).then(|| workload.number(5..40));
        let own = workload.split();
        handlers.push(runtime.spawn(async move {
            let context = Arc::clone(&handler.service.context);
            exit_on_error(&context, handler.serve(own, operations).await);
        }));
    }
    let first = handlers.remove(0);
    runtime.block_on(async {
        first.await?;
        if context.job.drops && !context.is_over() {
            sleep(Ending::time(workload)).await;
            service.is_shut_down.store(true, Ordering::SeqCst);
            return Ok(());
        }
        service.is_over.store(true, Ordering::SeqCst);
        for handler in handlers {
            handler.await?;
        }
        anyhow::Ok(())
    })?;
    shut_down(runtime);
    for attempt in running {
        if let Some(attempt) = attempt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            let operation = Arc::clone(&attempt.operation);
            context.end(&operation, attempt.after_shutdown()?)?;
        }
    }
    ensure!(
        service.locks.waiting() == 0,
        "a lock pool counts {} requests after the end of all",
        service.locks.waiting()
    );
    Ok(())
}

/// A task that does one operation after the other.
struct Handler<C: Store> {
    service: Arc<Service<C>>,
    thread: u32,
    running: Running<C>,
}

impl<C: Store> Handler<C> {
    /// Does this number of operations, or as many as it can until the first task has done its own.
    async fn serve(self, mut workload: Workload, operations: Option<u64>) -> Result<()> {
        let context = &self.service.context;
        let mut done = 0;
        while !context.is_over()
            && !self.service.is_over.load(Ordering::SeqCst)
            && operations.is_none_or(|operations| done < operations)
        {
            done += 1;
            let task = workload.lock_pool_task();
            let ending = if context.job.drops {
                Ending::draw(&mut workload)
            } else {
                Ending::Never
            };
            let client = self.service.pool.lock_pool();
            let attempt = Attempt {
                context: Arc::clone(context),
                connections: Arc::clone(&self.service.connections),
                locks: Some(Arc::clone(&self.service.locks)),
                operation: Arc::new(context.begin(self.thread, client, &task)?),
                plan: Arc::new(tasks::Plan::draw(&mut workload, client, task)),
            };
            self.set(Some(attempt.clone()));
            let operation = Arc::clone(&attempt.operation);
            let result = attempt.run(ending).await;
            // Its statement may have been cancelled by the end of the runtime, which drops this future too.
            if self.service.is_shut_down.load(Ordering::SeqCst) {
                pending::<()>().await;
            }
            let pause = context.end(&operation, result)?;
            self.set(None);
            // So that other threads get the locks too.
            sleep(workload.time(pause * 10)).await;
        }
        Ok(())
    }

    fn set(&self, attempt: Option<Attempt<C>>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = attempt;
    }
}
