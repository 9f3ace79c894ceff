//! Ticks of a job on a timer, with connections of an asynchronous pool.

use diesel_locks::{Async, LeaseOptions, StopToken, Tick};
use tokio::time::sleep;
use torture_history::{Outcome, workload_spec};

use super::drops::take;
use super::tasks::{Plan, write};
use crate::async_pools::AsyncConnections;
use crate::async_store::{AsyncStore, BoxFuture};
use crate::worker::errors::{Failure, Fenced, classify_async_result};
use crate::worker::operation::Operation;
use crate::worker::ticks::{WAIT, begin, outcome};

/// What is done in a tick.
pub(crate) struct Ticking<'a, A> {
    operation: &'a Operation,
    plan: &'a Plan,
    connections: &'a dyn AsyncConnections<A>,
}

impl<A: AsyncStore> Ticking<'_, A> {
    pub(crate) async fn run(&self, tick: &Tick<Async>) -> Result<(), Failure> {
        let held = begin(self.operation, tick.slot(), tick.due_at())?;
        sleep(self.plan.pause).await;
        self.operation.look(|| tick.guard().is_held());
        tick.guard().ensure_held()?;
        let resource = workload_spec::resource(workload_spec::TIMER.name, held.number);
        let mut conn = take(self.connections).await?;
        let conn: &mut A = &mut conn;
        let written = write(conn, self.operation, resource, held.fence).await;
        let is_accepted = classify_async_result(conn, written).await?;
        self.operation.look(|| tick.guard().is_held());
        if !is_accepted {
            return Err(Fenced.into());
        }
        Ok(())
    }
}

/// Runs one tick, unless none is to be run by this task in time.
pub(super) fn run_one<'a, A: AsyncStore>(
    connections: &'a dyn AsyncConnections<A>,
    operation: &'a Operation,
    plan: &'a Plan,
    lease: LeaseOptions,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        let stop = StopToken::new();
        let stopped = stop.clone();
        let time_limit = tokio::spawn(async move {
            sleep(WAIT).await;
            stopped.stop();
        });
        let ticking = Ticking {
            operation,
            plan,
            connections,
        };
        let pool = connections.lock_pool();
        let ran = pool.run_on_timer(&lease, &stop, &ticking).await;
        time_limit.abort();
        ran?;
        Ok(outcome(operation))
    })
}
