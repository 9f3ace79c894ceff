//! How futures are dropped, and what is looked at then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use diesel_async::SimpleAsyncConnection;
use diesel_locks::ObjectId;
use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use torture_history::{Outcome, Row, Task, workload_spec};

use super::lock_pool;
use super::tasks::{self, Plan};
use crate::async_pools::{AsyncConnections, AsyncLocks, Taken};
use crate::async_store::AsyncStore;
use crate::engine::Engine;
use crate::sabotage::Sabotage;
use crate::store::{SQLITE_BUSY_TIMEOUT, Store};
use crate::worker::context::WorkerContext;
use crate::worker::errors::{
    Failure, FutureDropped, NoConnection, classify_async_result, classify_in_lock_pool,
};
use crate::worker::locks;
use crate::worker::operation::Operation;
use crate::worker::workload::Workload;

/// How long a write waits for other writers, and the pause between two attempts.
const LONGEST_WRITE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// How a future is dropped, if it is not ready before.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Never,
    /// By a time limit of the application. Its connection is in use until the lock has been asked for.
    TimeLimit(Duration),
    /// By the end of its task, with its connection.
    Abort(Duration),
}

impl Ending {
    /// Half of the futures are dropped.
    pub(super) fn draw(workload: &mut Workload) -> Self {
        let after = Self::time(workload);
        match workload.number(0..4) {
            0 => Self::TimeLimit(after),
            1 => Self::Abort(after),
            _ => Self::Never,
        }
    }

    /// The time before a drop.
    pub(super) fn time(workload: &mut Workload) -> Duration {
        // Most operations take some milliseconds, and some wait for others.
        let longest = if workload.percent(25) { 500 } else { 25 };
        workload.time(longest)
    }
}

/// An operation that is attempted once.
pub(super) struct Attempt<C: Store> {
    pub(super) context: Arc<WorkerContext<C>>,
    pub(super) connections: Arc<dyn AsyncConnections<C::Async>>,
    /// The lock pool that it uses, if it does not use a connection.
    pub(super) locks: Option<Arc<dyn AsyncLocks<C::Async>>>,
    pub(super) operation: Arc<Operation>,
    pub(super) plan: Arc<Plan>,
}

impl<C: Store> Clone for Attempt<C> {
    fn clone(&self) -> Self {
        Self {
            context: Arc::clone(&self.context),
            connections: Arc::clone(&self.connections),
            locks: self.locks.clone(),
            operation: Arc::clone(&self.operation),
            plan: Arc::clone(&self.plan),
        }
    }
}

/// Waits for a connection.
pub(super) async fn take<A: AsyncStore>(
    connections: &dyn AsyncConnections<A>,
) -> Result<Taken<A>, Failure> {
    let taken = connections.take().await;
    taken.map_err(|error| NoConnection(format!("{error:#}")).into())
}

/// The outcome of an operation.
type Attempted = Result<Outcome, Failure>;

impl<C: Store> Attempt<C> {
    /// Runs the operation until it ends or is dropped.
    pub(super) async fn run(self, ending: Ending) -> Attempted {
        match ending {
            Ending::Never => self.complete().await,
            Ending::TimeLimit(after) => self.drop_after(after).await,
            Ending::Abort(after) => self.abort_after(after).await,
        }
    }

    async fn attempt(&self, conn: &mut C::Async) -> Attempted {
        let (context, connections) = (&self.context, &*self.connections);
        let attempted = tasks::attempt(context, connections, conn, &self.operation, &self.plan);
        let attempted = attempted.await;
        classify_async_result(conn, attempted).await
    }

    async fn complete(&self) -> Attempted {
        if let Some(locks) = &self.locks {
            let (context, operation, plan) = (&self.context, &self.operation, &self.plan);
            let attempted = lock_pool::attempt(context, &**locks, operation, plan).await;
            return attempted.map_err(classify_in_lock_pool);
        }
        let mut conn = take(&*self.connections).await?;
        self.operation.connected()?;
        self.attempt(&mut conn).await
    }

    async fn drop_after(&self, after: Duration) -> Attempted {
        if self.locks.is_some() {
            return match timeout(after, self.complete()).await {
                Ok(attempted) => attempted,
                Err(_) => self.dropped_in_lock_pool().await,
            };
        }
        let mut conn = take(&*self.connections).await?;
        self.operation.connected()?;
        if let Ok(attempted) = timeout(after, self.attempt(&mut conn)).await {
            return attempted;
        }
        if self.context.job.engine == Engine::Sqlite {
            self.write_outside(&mut conn).await?;
        } else {
            self.ask_for_lock().await?;
        }
        Err(FutureDropped("a time limit").into())
    }

    async fn abort_after(&self, after: Duration) -> Attempted {
        let attempt = self.clone();
        let mut task = tokio::spawn(async move { attempt.complete().await });
        if let Ok(attempted) = timeout(after, &mut task).await {
            return attempted?;
        }
        task.abort();
        match task.await {
            Ok(attempted) => return attempted,
            Err(error) if error.is_cancelled() => {}
            Err(error) => return Err(error.into()),
        }
        self.ask_for_lock().await?;
        Err(FutureDropped("the end of its task").into())
    }

    /// After a drop by a time limit while the operation waited, or used a connection of the lock pool.
    async fn dropped_in_lock_pool(&self) -> Attempted {
        if self.context.job.engine != Engine::Sqlite {
            self.ask_for_lock().await?;
        } else if let Ok(mut conn) = take(&*self.connections).await {
            // The connection was not returned to the pool while its transaction was open.
            self.write_outside(&mut conn).await?;
        }
        Err(FutureDropped("a time limit").into())
    }

    /// Begins the operation in a task. Returns `None` if it has not ended when its runtime is to be shut down.
    pub(super) fn run_briefly(&self, runtime: &Runtime, after: Duration) -> Option<Attempted> {
        let attempt = self.clone();
        let task = runtime.spawn(async move { attempt.complete().await });
        let attempted = runtime.block_on(async { timeout(after, task).await });
        Some(attempted.ok()?.unwrap_or_else(|error| Err(error.into())))
    }

    /// After the end of the runtime in which the operation was.
    pub(super) fn after_shutdown(self) -> Result<Attempted> {
        ensure!(
            Arc::strong_count(&self.plan) == 1,
            "a runtime has ended, and has not dropped a future"
        );
        if let Some(own) = own_lock(&self.context, &self.operation, &self.plan) {
            let asked = locks::is_free(&self.context, own);
            self.operation.requested(asked.as_ref().err())?;
        }
        Ok(Err(FutureDropped("the end of its runtime").into()))
    }

    /// Asks on another connection for the lock that the operation may have held. The runtime keeps running.
    async fn ask_for_lock(&self) -> Result<(), Failure> {
        let Some(own) = own_lock(&self.context, &self.operation, &self.plan) else {
            return Ok(());
        };
        let context = Arc::clone(&self.context);
        let asked = spawn_blocking(move || locks::is_free(&context, own)).await;
        let asked = asked.map_err(|error| anyhow!(error))?;
        self.operation.requested(asked.as_ref().err())
    }

    /// Writes a row by the connection. It is lost if the transaction is still open.
    async fn write_outside(&self, conn: &mut C::Async) -> Result<(), Failure> {
        // The method may have set them. A statement that waits for another writer is not to wait for long: the end of the
        // runtime waits for it, before it drops the transaction of that writer.
        let brief = "PRAGMA busy_timeout = 10; PRAGMA query_only = 0";
        conn.batch_execute(brief).await?;
        let written = self.write_until_free(conn).await;
        // It may be a connection that the operation did not use, and is lent again.
        conn.batch_execute(SQLITE_BUSY_TIMEOUT).await?;
        written
    }

    async fn write_until_free(&self, conn: &mut C::Async) -> Result<(), Failure> {
        let step = workload_spec::STEP_OUTSIDE;
        let started = Instant::now();
        loop {
            match conn.insert_step(self.operation.op, step).await {
                Ok(()) => return self.operation.wrote(Row::Step(step)),
                // A transaction of diesel-async's in which a lock was dropped accepts no writes.
                Err(_) if self.context.job.sabotage == Some(Sabotage::NoRollbackOnDrop) => {
                    return Ok(());
                }
                Err(error) if is_locked(&error) && started.elapsed() < LONGEST_WRITE => {
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether another connection writes (SQLite).
fn is_locked(error: &diesel::result::Error) -> bool {
    error.to_string().contains("database is locked")
}

/// The lock that no other operation takes, if the operation has one that another connection can ask for. SQLite's lock is
/// that of all writers.
fn own_lock<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    plan: &Plan,
) -> Option<ObjectId> {
    let is_lock = matches!(plan.task, Task::Lock(_));
    (is_lock && plan.has_own_lock && context.job.engine != Engine::Sqlite)
        .then(|| tasks::own_lock(operation))
}
