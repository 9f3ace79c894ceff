//! A job that a timer starts on every node, and that one node runs per tick.

#[cfg(feature = "r2d2")]
use std::future::ready;
use std::ops::Deref;

use chrono::{DateTime, Utc};
#[cfg(feature = "r2d2")]
use diesel::r2d2::R2D2Connection;

#[cfg(feature = "r2d2")]
use crate::SemaphoreExt;
use crate::acts::work::RepeatedWork;
#[cfg(feature = "_async_pool")]
use crate::api::closures::RepeatedSendWork;
use crate::jobs::timer_job::TimerJob;
use crate::jobs::timer_node::TimerNode;
use crate::pools::lender::Style;
#[cfg(feature = "r2d2")]
use crate::pools::lender::r2d2::R2d2Pool;
use crate::{ActiveSlot, Blocking, Error, LeaseOptions, Pool, SlotRenewer};
#[cfg(feature = "_async_pool")]
use crate::{Async, AsyncPool};

/// A tick of a [`TimerJob`], and the slot that is held while it is run. Dereferences to its [`ActiveSlot`].
#[derive(Debug)]
pub struct Tick<S: Style = Blocking> {
    slot: ActiveSlot<S>,
    due_at: DateTime<Utc>,
}

impl<S: Style> Tick<S> {
    /// Returns the time at which the tick was due, by the database's clock, on whichever node it runs. No two calls of the
    /// closures of nodes with the same period and offset get the same time, unless an operator releases the slot by force
    /// or deletes its row. Use it as a unique key of what the job makes, so that a second run fails.
    pub fn due_at(&self) -> DateTime<Utc> {
        self.due_at
    }
}

impl<S: Style> Deref for Tick<S> {
    type Target = ActiveSlot<S>;

    fn deref(&self) -> &ActiveSlot<S> {
        &self.slot
    }
}

#[cfg(feature = "r2d2")]
impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<R2d2Pool<C>> {
    /// Runs a job on a timer until a stop: at each tick of the job, one of all nodes calls `f`.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Error, SlotRenewer, StopToken, TimerJob};
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// let stop = StopToken::new(); // stopped on SIGTERM
    /// let renewer = SlotRenewer::new(pool).stopped_by(&stop);
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("node-2");
    /// let job = TimerJob::new("queue-logs", Duration::from_millis(200));
    /// renewer.run_on_timer(&job, &lease, |tick| {
    ///     println!("due at {}", tick.due_at());
    ///     # stop.stop();
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Call it on every node, as [`run_as_leader`](Self::run_as_leader). The database's clock says when a tick is due; those of the
    /// nodes do not matter. The node that is granted the job's slot runs the tick, and the slot stays unavailable until the next tick is due,
    /// however early `f` returns. So no tick is started twice.
    ///
    /// The lease (`lockAtMostFor` in ShedLock) is renewed while `f` runs, so a job may take longer than the lease, or than the
    /// period. `f` has to return when [`is_active`](ActiveSlot::is_active) returns false. The slot's time until the next tick needs no
    /// setting (`lockAtLeastFor`).
    ///
    /// | event | what follows |
    /// |---|---|
    /// | a tick is due | the first node that asks runs it, a few milliseconds later |
    /// | a node dies, or loses the slot, while it runs a tick | that tick is not repeated; the next tick is run by another node, once the lease has ended |
    /// | the job takes longer than its period | when it has ended, the newest tick that is due is run; older ones are skipped |
    /// | the database was out of reach when a tick was due | the tick is run when it is back, if no later tick is due by then |
    /// | the method is called in the middle of a period | this node begins with the next tick |
    /// | no node calls the method when a tick is due | the tick is skipped |
    /// | an error of the database between the grant of a tick and the call of `f`, or a lease that ends before that call | the slot is released, and the tick is run by this node or another one, if no later tick is due by then |
    /// | the node that was granted a tick is stopped before it calls `f` | the slot is released, and another node runs the tick, after at most a minute |
    /// | the database's clock jumps back | all nodes wait until the clock has passed the last tick that was run, also those that start meanwhile |
    /// | nodes call the method with different periods or offsets, while a new version is rolled out | the last grant decides: the slot stays unavailable until the next tick of the node that was granted it. Ticks of other nodes that were due before the grant count as run; of those that are due while the slot is unavailable, the newest is run afterwards, unless the slot is granted to yet another node first. A node may run few of its ticks, or none: give the job a new name with its new period |
    /// | an operator calls [`force_release_all`](SemaphoreExt::force_release_all), or deletes the row of the slot | the current tick may be run again. After the database's clock was set back by a long time, call `force_release_all`, and restart the nodes that have run ticks. The next tick then starts by the new time |
    /// | `f` returns an error, or panics | the slot is released, and the caller gets the error or panic: this node runs no further tick. The tick is not repeated |
    /// | an error of the database while it waits | as in [`run_as_leader`](Self::run_as_leader) |
    ///
    /// Between two ticks a node reads the clock and the slot once a minute. While another node runs a tick for longer than a
    /// period, it asks once per poll interval ([`poll_interval`](Self::poll_interval)).
    ///
    /// # Errors
    ///
    /// As [`run_as_leader`](Self::run_as_leader); [`Error::InvalidInterval`] for the period too.
    #[doc(alias(
        "cron",
        "schedule",
        "scheduler",
        "ShedLock",
        "SchedulerLock",
        "periodic"
    ))]
    pub fn run_on_timer<E, F>(
        &self,
        job: &TimerJob,
        lease: &LeaseOptions,
        mut f: F,
    ) -> Result<(), E>
    where
        F: FnMut(&Tick) -> Result<(), E>,
        E: From<Error>,
    {
        let f = |tick: &Tick| ready(f(tick));
        C::block_on(run_ticks(self, job, lease, f))
    }
}

#[cfg(feature = "_async_pool")]
impl<P: AsyncPool> SlotRenewer<P> {
    /// Runs a job on a timer until a stop: as on r2d2's pool, in a task of its own. The nodes of a job may use pools of either
    /// kind.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{AsyncPool, Error, SlotRenewer, TimerJob};
    /// use std::time::Duration;
    ///
    /// async fn report(renewer: &SlotRenewer<impl AsyncPool>) -> Result<(), Error> {
    ///     let lease = LeaseOptions::new(Duration::from_secs(30)).holder("node-2");
    ///     let job = TimerJob::new("hourly-report", Duration::from_secs(3600));
    ///     renewer
    ///         .run_on_timer(&job, &lease, async |tick| {
    ///             println!("due at {}", tick.due_at());
    ///             Ok::<_, Error>(())
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// `f` is as with [`run_as_leader`](Self::run_as_leader).
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias("cron", "schedule", "ShedLock", "periodic"))]
    pub fn run_on_timer<E, F>(
        &self,
        job: &TimerJob,
        lease: &LeaseOptions,
        f: F,
    ) -> impl Future<Output = Result<(), E>> + Send
    where
        for<'r> F: RepeatedSendWork<&'r Tick<Async>, Result<(), E>>,
        E: From<Error> + Send,
    {
        run_ticks(self, job, lease, f)
    }
}

async fn run_ticks<P: Pool, E, F>(
    renewer: &SlotRenewer<P>,
    job: &TimerJob,
    lease: &LeaseOptions,
    mut f: F,
) -> Result<(), E>
where
    for<'r> F: RepeatedWork<&'r Tick<P::Style>, Result<(), E>>,
    E: From<Error>,
{
    let mut node = TimerNode::new(renewer.generic(), job, lease)?;
    while let Some((held, due_at)) = node.next().await? {
        let slot = ActiveSlot::new(held, node.stop());
        let tick = Tick { slot, due_at };
        let result = f(&tick).await;
        tick.slot.release().await;
        result?;
    }
    Ok(())
}
