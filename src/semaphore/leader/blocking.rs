//! A leader on a thread.

use diesel::r2d2::R2D2Connection;

use super::candidate::Candidate;
use crate::semaphore::active_slot::ActiveSlot;
use crate::{Error, LeaseOptions, Semaphore, SemaphoreExt, SlotGuard, SlotRenewer, StopToken};

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<C> {
    /// Stands for election until `stop` is stopped, and calls `f` each time this node is elected.
    ///
    /// Call it on every node, on a thread of its own. A semaphore with one permit has at most one leader at a time; one
    /// with N permits has at most N, and then each call of `f` is one of them. The method waits for a slot, calls `f`,
    /// releases the slot when `f` returns, and waits again. The lease is renewed while `f` runs.
    ///
    /// `f` has to return when [`is_active`](ActiveSlot::is_active) returns false: the slot is lost, or `stop` is stopped.
    /// Nothing interrupts `f`. A former leader that was paused may act beside the next one until it checks: give its
    /// writes the [fence](ActiveSlot::fence), or pin the slot in their transactions.
    ///
    /// | event | what follows |
    /// |---|---|
    /// | the leader's node dies, or the database is out of its reach | a standby is elected when the lease has ended; with more than 100 permits after at most one poll interval more |
    /// | the leader returns, or is stopped | a standby is elected after at most one poll interval; in the same process at once |
    /// | `f` returns `Ok` while it is still the leader | it resigns: it stands for election again after one poll interval, so that another node may be elected |
    /// | the slot is lost | `is_active` returns false, and `f` must return: nothing interrupts it. Then this node stands for election again |
    /// | `f` returns an error | the slot is released, and the error returned |
    /// | `f` panics | the slot is released, and the panic continues in the caller |
    /// | an error of the database or the pool while it waits | it is logged by `tracing`, and retried after a pause of 0.1 s, which grows to 10 s |
    /// | an error that no retry can mend: invalid arguments, missing tables or privileges | it is returned |
    /// | `stop` is stopped | a wait ends at once, or after the attempt that is running; when `f` has returned, the slot is released and the method returns `Ok` |
    ///
    /// The poll interval is 1 s unless [`poll_interval`](Self::poll_interval) sets another one. `hold_at_least` of the lease
    /// delays each election after a release by the rest of that time.
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
    /// let renewer = SlotRenewer::new(pool);
    /// let stop = StopToken::new(); // stopped on SIGTERM
    /// let lease = LeaseOptions::new(Duration::from_secs(15)).holder("node-2");
    /// let mut steps = 0;
    /// # let signal = stop.clone();
    /// renewer.run_as_leader(&LEADER, &lease, &stop, |leader| {
    ///     while leader.sleep(Duration::from_millis(10)) {
    ///         steps += 1; // a step of the leader's work
    ///         # if steps == 3 { signal.stop() }
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// # assert_eq!(steps, 3);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias(
        "leader election",
        "leader_election",
        "elect",
        "singleton",
        "active_passive"
    ))]
    #[doc(alias("failover"))]
    pub fn run_as_leader<E, F>(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        stop: &StopToken,
        mut f: F,
    ) -> Result<(), E>
    where
        F: FnMut(&ActiveSlot) -> Result<(), E>,
        E: From<Error>,
    {
        let mut candidate = Candidate::new(self.generic(), semaphore, lease, stop)?;
        while let Some(held) = C::block_on(candidate.elected())? {
            let leader = ActiveSlot::new(SlotGuard::new::<C>(held), candidate.stop());
            let result = f(&leader);
            // Not `is_active`: `f` may have stopped the token of the slot.
            candidate.has_led(leader.guard().is_held());
            leader.release();
            result?;
        }
        Ok(())
    }
}
