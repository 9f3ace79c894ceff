//! A leader in a task.
#![expect(
    clippy::manual_async_fn,
    reason = "the signatures promise that the futures are `Send`"
)]

use super::candidate::Candidate;
use crate::poll::RepeatedWork;
use crate::semaphore::async_active_slot::AsyncActiveSlot;
use crate::{
    AsyncPool, AsyncSlotGuard, AsyncSlotRenewer, Error, LeaseOptions, Semaphore, StopToken,
};

impl<P: AsyncPool> AsyncSlotRenewer<P> {
    /// Stands for election until `stop` is stopped, and calls `f` each time this node is elected.
    ///
    /// Call it on every node, in a task of its own. A semaphore with one permit has at most one leader at a time; one
    /// with N permits has at most N, and then each call of `f` is one of them. The method waits for a slot, calls `f`,
    /// releases the slot when `f` has returned, and waits again. The lease is renewed while `f` runs.
    ///
    /// `f` has to return when [`is_active`](AsyncActiveSlot::is_active) returns false: the slot is lost, or `stop` is
    /// stopped. Nothing interrupts `f`: let it do its work in a `select!` beside [`ended`](AsyncActiveSlot::ended). A former
    /// leader that was paused may act beside the next one until it checks: give its writes the
    /// [fence](AsyncActiveSlot::fence), or pin the slot in their transactions.
    ///
    /// | event | what follows |
    /// |---|---|
    /// | the leader's node dies, or the database is out of its reach | a standby is elected when the lease has ended; with more than 100 permits after at most one poll interval more |
    /// | the leader returns, or is stopped | a standby is elected after at most one poll interval; in the same process at once |
    /// | `f` returns `Ok` while it is still the leader | it resigns: it stands for election again after one poll interval, so that another node may be elected |
    /// | the slot is lost | `is_active` returns false, and `f` must return. Then this node stands for election again |
    /// | `f` returns an error | the slot is released, and the error returned |
    /// | `f` panics | the panic continues, and the slot is released in the background |
    /// | the future is dropped | the future of `f` is dropped, and the slot is released in the background |
    /// | an error of the database or the pool while it waits | it is logged by `tracing`, and retried after a pause of 0.1 s, which grows to 10 s |
    /// | an error that no retry can mend: invalid arguments, missing tables or privileges, a closed pool | it is returned |
    /// | `stop` is stopped | a wait ends at once, or after the attempt that is running; when `f` has returned, the slot is released and the method returns `Ok` |
    ///
    /// The poll interval is 1 s unless [`poll_interval`](Self::poll_interval) sets another one. `hold_at_least` of the lease
    /// delays each election after a release by the rest of that time.
    ///
    /// `f` can't change a variable that it captures, because of a limit of `async` closures that are called more than once: use
    /// an atomic or a `Mutex`.
    ///
    /// # Errors
    ///
    /// Those of `f`. [`Error::InvalidName`], [`Error::InvalidPermits`], [`Error::InvalidLease`] and
    /// [`Error::InvalidInterval`], before anything is sent to the database. [`Error::MissingTables`],
    /// [`Error::InsufficientPrivilege`], [`Error::PreparedStatementMismatch`], and the other errors that
    /// ask for a change of the program or of the database.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{AsyncPool, AsyncSlotRenewer, Error, StopToken};
    /// use std::time::Duration;
    ///
    /// const LEADER: Semaphore = Semaphore::from_static("mail-queue-leader", 1);
    ///
    /// /// Until `stop` is stopped, on SIGTERM.
    /// async fn send_mails(renewer: &AsyncSlotRenewer<impl AsyncPool>, stop: &StopToken) -> Result<(), Error> {
    ///     let lease = LeaseOptions::new(Duration::from_secs(15)).holder("node-2");
    ///     renewer
    ///         .run_as_leader(&LEADER, &lease, stop, async |leader| {
    ///             while leader.sleep(Duration::from_millis(200)).await {
    ///                 // a step of the leader's work
    ///             }
    ///             Ok::<_, Error>(())
    ///         })
    ///         .await
    /// }
    /// ```
    #[doc(alias(
        "leader election",
        "leader_election",
        "elect",
        "singleton",
        "active_passive"
    ))]
    #[doc(alias("failover"))]
    pub fn run_as_leader<'a, 'f, E, F>(
        &'a self,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
        stop: &'a StopToken,
        mut f: F,
    ) -> impl Future<Output = Result<(), E>> + Send + 'a
    where
        for<'r> F: AsyncFnMut(&'r AsyncActiveSlot) -> Result<(), E>
            + RepeatedWork<&'r AsyncActiveSlot, Result<(), E>, Future: Send>
            + Send
            + 'f,
        E: From<Error> + Send + 'f,
        'f: 'a,
    {
        async move {
            let mut candidate = Candidate::new(self.generic(), semaphore, lease, stop)?;
            while let Some(held) = candidate.elected().await? {
                let leader = AsyncActiveSlot::new(AsyncSlotGuard::new(held), candidate.stop());
                let result = f(&leader).await;
                // Not `is_active`: `f` may have stopped the token of the slot.
                candidate.has_led(leader.guard().is_held());
                leader.release().await;
                result?;
            }
            Ok(())
        }
    }
}
