//! What a renewer runs again and again while it holds a slot: a leader with automatic fail-over, and a job on a timer, which
//! one node runs per tick.

#[cfg(feature = "r2d2")]
use std::future::ready;
use std::ops::Deref;

use chrono::{DateTime, Utc};
#[cfg(feature = "r2d2")]
use diesel::r2d2::R2D2Connection;

#[cfg(feature = "_async_pool")]
use crate::Async;
#[cfg(feature = "r2d2")]
use crate::SemaphoreExt;
use crate::acts::closures::RepeatedWork;
use crate::jobs::Candidate;
use crate::jobs::timer::{TimerJob, TimerNode};
#[cfg(feature = "r2d2")]
use crate::pools::r2d2::R2d2Pool;
use crate::{ActiveSlot, Blocking, Error, LeaseOptions, Pool, Semaphore, SlotRenewer};

/// A tick of a [`TimerJob`], and the slot that is held while it is run. Dereferences to its [`ActiveSlot`].
#[derive(Debug)]
pub struct Tick<S = Blocking> {
    slot: ActiveSlot<S>,
    due_at: DateTime<Utc>,
}

impl<S> Tick<S> {
    /// Returns the time at which the tick was due, by the database's clock, on whichever node it runs. No two calls of the
    /// closures of nodes with the same schedule get the same time, unless an operator releases the slot by force
    /// or deletes its row. Use it as a unique key of what the job makes, so that a second run fails.
    pub fn due_at(&self) -> DateTime<Utc> {
        self.due_at
    }
}

impl<S> Deref for Tick<S> {
    type Target = ActiveSlot<S>;

    fn deref(&self) -> &ActiveSlot<S> {
        &self.slot
    }
}

#[cfg(feature = "r2d2")]
impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<R2d2Pool<C>> {
    /// Stands for election, and calls `f` each time this node is elected, until a stop.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Error, SlotRenewer, StopToken};
    /// use std::time::Duration;
    ///
    /// const LEADER: Semaphore = Semaphore::from_static("mail-queue-leader", 1);
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # let (pool, _directory) = sqlite::database();
    /// let stop = StopToken::new(); // stopped on SIGTERM
    /// let renewer = SlotRenewer::new(pool).stopped_by(&stop);
    /// let lease = LeaseOptions::new(Duration::from_secs(15)).holder("node-2");
    /// renewer.run_as_leader(&LEADER, &lease, |leader| {
    ///     # stop.stop();
    ///     while leader.sleep(Duration::from_millis(10)) {
    ///         // a step of the leader's work
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Call it on every node, on a thread of its own, on a renewer that a token stops ([`stopped_by`](Self::stopped_by),
    /// [`Shutdown::add_renewer`](crate::Shutdown::add_renewer)). A semaphore with N permits has at most N leaders at a time. The
    /// lease is renewed while `f` runs.
    ///
    /// `f` has to return when [`is_active`](ActiveSlot::is_active) returns false. A former leader that was paused may act beside
    /// the next one until it checks: give its writes the [fence](ActiveSlot::fence), or pin the slot in their transactions.
    ///
    /// | event | what follows |
    /// |---|---|
    /// | the leader's node dies, or the database is out of its reach | a standby is elected when the lease has expired; with more than 100 permits after at most one poll interval more |
    /// | the leader returns, or is stopped | a standby is elected after at most one poll interval; in the same process at once |
    /// | `f` returns `Ok` while it is still the leader | it resigns: it stands for election again after one poll interval |
    /// | [`request_release`](SemaphoreExt::request_release) of its slot | `is_active` returns false, so `f` returns: it resigns |
    /// | `f` returns `Ok` after the slot was lost | this node stands for election again |
    /// | `f` returns an error, or panics | the slot is released, and the caller gets the error or panic |
    /// | an error while it waits | it is logged by `tracing`, and retried after a pause of 0.1 s, which grows to 10 s; one that no retry can mend (invalid arguments, missing tables or privileges) is returned |
    /// | a stop | a wait ends at once, or after the attempt that is running; when `f` has returned, the slot is released and the method returns `Ok` |
    ///
    /// `hold_at_least` of the lease delays each election after a release by the rest of that time. The poll interval is 1 s unless
    /// [`poll_interval`](Self::poll_interval) sets another one.
    ///
    /// # Errors
    ///
    /// Those of `f`, and those that ask for a change of the program or of the database, such as [`Error::InvalidLease`] and
    /// [`Error::MissingTables`].
    #[doc(alias("leader election", "elect", "singleton", "failover"))]
    #[doc(alias("active_passive"))]
    pub fn run_as_leader<E, F>(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
        mut f: F,
    ) -> Result<(), E>
    where
        F: FnMut(&ActiveSlot) -> Result<(), E>,
        E: From<Error>,
    {
        let f = |leader: &ActiveSlot| ready(f(leader));
        C::block_on(lead(self, semaphore, lease.into(), f))
    }

    /// Runs a job on a timer until a stop: at each tick of the job, one of all nodes calls `f`.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Error, SlotRenewer, StopToken, TimerJob};
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # let (pool, _directory) = sqlite::database();
    /// let stop = StopToken::new(); // stopped on SIGTERM
    /// let renewer = SlotRenewer::new(pool).stopped_by(&stop);
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("node-2");
    /// let job = TimerJob::new("queue-logs", Duration::from_millis(200));
    /// renewer.run_on_timer(&job, &lease, |tick| {
    ///     println!("due at {}", tick.due_at());
    ///     # stop.stop();
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Call it on every node, as [`run_as_leader`](Self::run_as_leader). The database's clock says when a tick is due. The node
    /// that is granted the job's slot runs the tick, and the slot stays unavailable until the next tick is due, however early `f`
    /// returns (no `lockAtLeastFor` is needed). So no tick is started twice.
    ///
    /// The lease (`lockAtMostFor` in ShedLock) is renewed while `f` runs, so a job may take longer than the lease, or than the
    /// period.
    ///
    /// | event | what follows |
    /// |---|---|
    /// | a tick is due | the first node that asks runs it, a few milliseconds later |
    /// | no node is in the method when a tick is due | the tick is skipped: a node that calls it later begins with the next one |
    /// | a node dies, or loses the slot, while it runs a tick | that tick is not repeated; another node runs the next one, once the lease has expired |
    /// | the job takes longer than its period | when it has ended, the newest tick that is due is run; older ones are skipped |
    /// | the database was out of reach when a tick was due | the tick is run when it is back, if no later tick is due by then |
    /// | between the grant of a tick and the call of `f` the database fails, or the lease expires | the slot is released, and a node runs the tick, if no later tick is due by then |
    /// | between the grant and the call the database does not answer | the lease is not renewed: when it has expired, and the tick has ended, another node runs the newest tick |
    /// | the node that was granted a tick is stopped before it calls `f` | the slot is released, and another node runs the tick, after at most a minute |
    /// | the database's clock jumps back | all nodes wait until the clock has passed the last tick that was run, also those that start meanwhile. To end this wait, call [`force_release_all`](SemaphoreExt::force_release_all), or delete the row of the slot if it is not held, and restart the nodes that have run ticks |
    /// | nodes have different periods or offsets (a new version is rolled out) | after a grant the slot stays unavailable until that node's next tick. Then a node runs its newest tick that became due meanwhile, unless another node is granted the slot first. Ticks that were due before the grant count as run. A node may run few of its ticks, or none: give a job with a new period a new name |
    /// | an operator calls [`force_release_all`](SemaphoreExt::force_release_all), or deletes the row of the slot | the current tick may be run again |
    /// | [`request_release`](SemaphoreExt::request_release) of the slot | `is_active` returns false. The tick is not repeated |
    /// | `f` returns an error, or panics | the slot is released, and the caller gets the error or panic: this node runs no further tick. The tick is not repeated |
    /// | an error while it waits | as in [`run_as_leader`](Self::run_as_leader) |
    ///
    /// Between two ticks a node reads the clock and the slot once a minute. While another node runs a tick for longer than a
    /// period, it asks once per [poll interval](Self::poll_interval).
    ///
    /// # Errors
    ///
    /// Those of [`run_as_leader`](Self::run_as_leader); [`Error::InvalidInterval`] for the period and the offset too;
    /// `Error::InvalidSchedule`.
    #[doc(alias("cron", "scheduler", "ShedLock", "SchedulerLock", "periodic"))]
    pub fn run_on_timer<E, F>(
        &self,
        job: &TimerJob,
        lease: impl Into<LeaseOptions>,
        mut f: F,
    ) -> Result<(), E>
    where
        F: FnMut(&Tick) -> Result<(), E>,
        E: From<Error>,
    {
        let f = |tick: &Tick| ready(f(tick));
        C::block_on(run_ticks(self, job, lease.into(), f))
    }
}

#[cfg(feature = "_async_pool")]
impl<P: Pool<Style = Async>> SlotRenewer<P> {
    /// Stands for election, and runs `f` each time this node is elected, until a stop: as on r2d2's pool, in a task of its own, and
    /// with the same errors. A closed pool is an error too. If `f` panics, the slot is released in the background.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Async, Error, Pool, SlotRenewer, TimerJob};
    /// use std::time::Duration;
    ///
    /// async fn run(renewer: &SlotRenewer<impl Pool<Style = Async>>) -> Result<(), Error> {
    ///     let lease = LeaseOptions::new(Duration::from_secs(15)).holder("node-2");
    ///     let queue = Semaphore::new("mail-queue-leader", 1);
    ///     let mails = renewer.run_as_leader(&queue, &lease, async |leader| {
    ///         tokio::select! {
    ///             () = leader.ended() => Ok(()),
    ///             result = send_mails() => result,
    ///         }
    ///     });
    ///     let job = TimerJob::new("hourly-report", Duration::from_secs(3600));
    ///     let reports = renewer.run_on_timer(&job, &lease, async |tick| {
    ///         println!("due at {}", tick.due_at());
    ///         Ok::<_, Error>(())
    ///     });
    ///     tokio::try_join!(mails, reports)?;
    ///     Ok(())
    /// }
    /// # async fn send_mails() -> Result<(), Error> { Ok(()) }
    /// ```
    #[doc(alias("leader election", "elect", "failover"))]
    pub fn run_as_leader<E, F>(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
        f: F,
    ) -> impl Future<Output = Result<(), E>> + Send
    where
        for<'r> F: RepeatedWork<&'r ActiveSlot<Async>, Result<(), E>, Future: Send> + Send,
        E: From<Error> + Send,
    {
        lead(self, semaphore, lease.into(), f)
    }

    /// Runs a job on a timer until a stop: as on r2d2's pool, in a task of its own, and with the same errors. The nodes of a job
    /// may use pools of either kind. [`run_as_leader`](Self::run_as_leader) has an example.
    #[doc(alias("cron", "schedule", "ShedLock", "periodic"))]
    pub fn run_on_timer<E, F>(
        &self,
        job: &TimerJob,
        lease: impl Into<LeaseOptions>,
        f: F,
    ) -> impl Future<Output = Result<(), E>> + Send
    where
        for<'r> F: RepeatedWork<&'r Tick<Async>, Result<(), E>, Future: Send> + Send,
        E: From<Error> + Send,
    {
        run_ticks(self, job, lease.into(), f)
    }
}

async fn lead<P: Pool, E, F>(
    renewer: &SlotRenewer<P>,
    semaphore: &Semaphore,
    lease: LeaseOptions,
    mut f: F,
) -> Result<(), E>
where
    for<'r> F: RepeatedWork<&'r ActiveSlot<P::Style>, Result<(), E>>,
    E: From<Error>,
{
    let mut candidate = Candidate::new(renewer, semaphore, &lease)?;
    while let Some(held) = candidate.elected().await? {
        let leader = ActiveSlot::new(held, candidate.stop());
        let result = f(&leader).await;
        // Not `is_active`: `f` may have stopped the token of the slot.
        candidate.has_led(leader.guard().is_held());
        leader.release().await;
        result?;
    }
    Ok(())
}

async fn run_ticks<P: Pool, E, F>(
    renewer: &SlotRenewer<P>,
    job: &TimerJob,
    lease: LeaseOptions,
    mut f: F,
) -> Result<(), E>
where
    for<'r> F: RepeatedWork<&'r Tick<P::Style>, Result<(), E>>,
    E: From<Error>,
{
    let mut node = TimerNode::new(renewer, job, &lease)?;
    while let Some((held, due_at)) = node.next().await? {
        let slot = ActiveSlot::new(held, node.stop());
        let tick = Tick { slot, due_at };
        let result = f(&tick).await;
        tick.slot.release().await;
        result?;
    }
    Ok(())
}
