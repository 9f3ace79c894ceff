//! A job on a timer, in a task.
#![expect(
    clippy::manual_async_fn,
    reason = "the signatures promise that the futures are `Send`"
)]

use std::ops::Deref;

use chrono::{DateTime, Utc};

use super::job::TimerJob;
use super::node::Node;
use crate::poll::RepeatedWork;
use crate::semaphore::async_active_slot::AsyncActiveSlot;
use crate::{AsyncPool, AsyncSlotGuard, AsyncSlotRenewer, Error, LeaseOptions, StopToken};

/// A tick of a [`TimerJob`], and the slot that is held while an asynchronous closure runs it. Dereferences to its
/// [`AsyncActiveSlot`].
#[derive(Debug)]
pub struct AsyncTick {
    slot: AsyncActiveSlot,
    due_at: DateTime<Utc>,
}

impl AsyncTick {
    /// Returns the time at which the tick was due, by the database's clock, on whichever node it runs. No two calls of the
    /// closures of nodes with the same period and offset get the same time, unless an operator releases the slot by force
    /// or deletes its row. Use it as a unique key of what the job makes, so that a second run fails.
    pub fn due_at(&self) -> DateTime<Utc> {
        self.due_at
    }
}

impl Deref for AsyncTick {
    type Target = AsyncActiveSlot;

    fn deref(&self) -> &AsyncActiveSlot {
        &self.slot
    }
}

impl<P: AsyncPool> AsyncSlotRenewer<P> {
    /// Runs a job on a timer until `stop` is stopped: at each tick of the job, one of all nodes calls `f`.
    ///
    /// Call it on every node, in a task of its own. Does what `SlotRenewer::run_on_timer` does, and the nodes of a job may call
    /// the one or the other: the database's clock says when a tick is due; the node that is granted the job's slot runs the
    /// tick, and the slot stays unavailable until the next tick is due, however early `f` returns. So no tick is started twice,
    /// and a tick whose node dies or loses the slot is not repeated. The lease is renewed while `f` runs, so a job may take
    /// longer than the lease, or than the period: then the newest tick that is due is run next.
    ///
    /// `f` has to return when [`is_active`](AsyncActiveSlot::is_active) returns false. Nothing interrupts it: let it do its work
    /// in a `select!` beside [`ended`](AsyncActiveSlot::ended). If it returns an error, the slot is released and the error
    /// returned: this node runs no further tick. The same follows from a panic, which continues, and when the future is
    /// dropped; the release is then in the background. A tick that was granted and not begun is left to other nodes.
    ///
    /// Between two ticks a node reads the clock and the slot once a minute. While another node runs a tick for longer than a
    /// period, it asks once per poll interval ([`poll_interval`](Self::poll_interval)). Errors of the database while it waits
    /// are retried as in [`run_as_leader`](Self::run_as_leader).
    ///
    /// `f` can't change a variable that it captures, because of a limit of `async` closures that are called more than once: use
    /// an atomic or a `Mutex`.
    ///
    /// # Errors
    ///
    /// Those of `f`. [`Error::InvalidName`], [`Error::InvalidLease`], and [`Error::InvalidInterval`] for the period or
    /// the poll interval, before anything is sent to the database. The others as in
    /// [`run_as_leader`](Self::run_as_leader).
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{AsyncPool, AsyncSlotRenewer, Error, StopToken, TimerJob};
    /// use std::time::Duration;
    ///
    /// /// Until `stop` is stopped, on SIGTERM.
    /// async fn report(renewer: &AsyncSlotRenewer<impl AsyncPool>, stop: &StopToken) -> Result<(), Error> {
    ///     let lease = LeaseOptions::new(Duration::from_secs(30)).holder("node-2");
    ///     let job = TimerJob::new("hourly-report", Duration::from_secs(3600));
    ///     renewer
    ///         .run_on_timer(&job, &lease, stop, async |tick| {
    ///             println!("due at {}", tick.due_at());
    ///             Ok::<_, Error>(())
    ///         })
    ///         .await
    /// }
    /// ```
    #[doc(alias(
        "cron",
        "schedule",
        "scheduler",
        "ShedLock",
        "SchedulerLock",
        "periodic"
    ))]
    pub fn run_on_timer<'a, 'f, E, F>(
        &'a self,
        job: &'a TimerJob,
        lease: &'a LeaseOptions,
        stop: &'a StopToken,
        mut f: F,
    ) -> impl Future<Output = Result<(), E>> + Send + 'a
    where
        for<'r> F: AsyncFnMut(&'r AsyncTick) -> Result<(), E>
            + RepeatedWork<&'r AsyncTick, Result<(), E>, Future: Send>
            + Send
            + 'f,
        E: From<Error> + Send + 'f,
        'f: 'a,
    {
        async move {
            let mut node = Node::new(self.generic(), job, lease, stop)?;
            while let Some((held, due_at)) = node.next().await? {
                let slot = AsyncActiveSlot::new(AsyncSlotGuard::new(held), node.stop());
                let tick = AsyncTick { slot, due_at };
                let result = f(&tick).await;
                tick.slot.release().await;
                result?;
            }
            Ok(())
        }
    }
}
