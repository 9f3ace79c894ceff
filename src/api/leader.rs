//! A leader with automatic fail-over.

#[cfg(feature = "r2d2")]
use std::future::ready;

#[cfg(feature = "r2d2")]
use diesel::r2d2::R2D2Connection;

#[cfg(feature = "r2d2")]
use crate::SemaphoreExt;
use crate::acts::work::RepeatedWork;
#[cfg(feature = "_async_pool")]
use crate::api::closures::RepeatedSendWork;
use crate::jobs::candidate::Candidate;
#[cfg(feature = "r2d2")]
use crate::pools::lender::r2d2::R2d2Pool;
use crate::{ActiveSlot, Error, LeaseOptions, Pool, Semaphore, SlotRenewer};
#[cfg(feature = "_async_pool")]
use crate::{Async, AsyncPool};

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
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// let stop = StopToken::new(); // stopped on SIGTERM
    /// let renewer = SlotRenewer::new(pool).stopped_by(&stop);
    /// let lease = LeaseOptions::new(Duration::from_secs(15)).holder("node-2");
    /// let mut steps = 0;
    /// renewer.run_as_leader(&LEADER, &lease, |leader| {
    ///     while leader.sleep(Duration::from_millis(10)) {
    ///         steps += 1; // a step of the leader's work
    ///         # if steps == 3 { stop.stop() }
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// # assert_eq!(steps, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Call it on every node, on a thread of its own, on a renewer that a token stops ([`stopped_by`](Self::stopped_by),
    /// [`Shutdown::add_renewer`](crate::Shutdown::add_renewer)). A semaphore with N permits has at most N leaders at a time. The
    /// method waits for a slot, calls `f`, releases the slot when `f` returns, and waits again. The lease is renewed while `f` runs.
    ///
    /// `f` has to return when [`is_active`](ActiveSlot::is_active) returns false: the slot is lost, or a stop was requested.
    /// Nothing interrupts `f`. A former leader that was paused may act beside the next one until it checks: give its
    /// writes the [fence](ActiveSlot::fence), or pin the slot in their transactions.
    ///
    /// | event | what follows |
    /// |---|---|
    /// | the leader's node dies, or the database is out of its reach | a standby is elected when the lease has ended; with more than 100 permits after at most one poll interval more |
    /// | the leader returns, or is stopped | a standby is elected after at most one poll interval; in the same process at once |
    /// | `f` returns `Ok` while it is still the leader | it resigns: it stands for election again after one poll interval, so that another node may be elected |
    /// | the slot is lost | `is_active` returns false, and `f` must return. Then this node stands for election again |
    /// | `f` returns an error | the slot is released, and the error returned |
    /// | `f` panics | the slot is released, and the panic continues in the caller |
    /// | an error of the database or the pool while it waits | it is logged by `tracing`, and retried after a pause of 0.1 s, which grows to 10 s |
    /// | an error that no retry can mend: invalid arguments, missing tables or privileges | it is returned |
    /// | a stop | a wait ends at once, or after the attempt that is running; when `f` has returned, the slot is released and the method returns `Ok` |
    ///
    /// The poll interval is 1 s unless [`poll_interval`](Self::poll_interval) sets another one. `hold_at_least` of the lease
    /// delays each election after a release by the rest of that time.
    ///
    /// # Errors
    ///
    /// Those of `f`. [`Error::InvalidName`], [`Error::InvalidPermits`], [`Error::InvalidLease`], [`Error::InvalidInterval`],
    /// [`Error::MissingTables`], [`Error::InsufficientPrivilege`], and the others that ask for a change of the program or of the
    /// database.
    #[doc(alias(
        "leader election",
        "leader_election",
        "elect",
        "singleton",
        "active_passive",
        "failover"
    ))]
    pub fn run_as_leader<E, F>(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        mut f: F,
    ) -> Result<(), E>
    where
        F: FnMut(&ActiveSlot) -> Result<(), E>,
        E: From<Error>,
    {
        let f = |leader: &ActiveSlot| ready(f(leader));
        C::block_on(lead(self, semaphore, lease, f))
    }
}

#[cfg(feature = "_async_pool")]
impl<P: AsyncPool> SlotRenewer<P> {
    /// Stands for election, and runs `f` each time this node is elected, until a stop: as on r2d2's pool, in a task of its own.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{AsyncPool, Error, SlotRenewer};
    /// use std::time::Duration;
    ///
    /// const LEADER: Semaphore = Semaphore::from_static("mail-queue-leader", 1);
    ///
    /// async fn send_mails(renewer: &SlotRenewer<impl AsyncPool>) -> Result<(), Error> {
    ///     let lease = LeaseOptions::new(Duration::from_secs(15)).holder("node-2");
    ///     renewer
    ///         .run_as_leader(&LEADER, &lease, async |leader| {
    ///             while leader.sleep(Duration::from_millis(200)).await {
    ///                 // a step of the leader's work
    ///             }
    ///             Ok::<_, Error>(())
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// Let `f` do its work in a `select!` beside [`ended`](ActiveSlot::ended). If `f` panics, or the future is dropped, the slot is
    /// released in the background. `f` can't change a variable that it captures, because of a limit of `async` closures that are
    /// called more than once: use an atomic or a `Mutex`.
    ///
    /// # Errors
    ///
    /// As there; a closed pool.
    #[doc(alias("leader election", "elect", "failover"))]
    pub fn run_as_leader<E, F>(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        f: F,
    ) -> impl Future<Output = Result<(), E>> + Send
    where
        for<'r> F: RepeatedSendWork<&'r ActiveSlot<Async>, Result<(), E>>,
        E: From<Error> + Send,
    {
        lead(self, semaphore, lease, f)
    }
}

async fn lead<P: Pool, E, F>(
    renewer: &SlotRenewer<P>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    mut f: F,
) -> Result<(), E>
where
    for<'r> F: RepeatedWork<&'r ActiveSlot<P::Style>, Result<(), E>>,
    E: From<Error>,
{
    let mut candidate = Candidate::new(renewer.generic(), semaphore, lease)?;
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
