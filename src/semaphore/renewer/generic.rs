//! What `SlotRenewer` and `AsyncSlotRenewer` do, with whatever connections.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::handle::Handle;
use super::shared::Shared;
use super::weak::WeakRenewer;
use crate::activity::{Active, Activity};
use crate::cancel::counted;
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::limits::{LONGEST_POLL_INTERVAL, SHORTEST_POLL_INTERVAL};
use crate::pooled::Borrowed;
use crate::semaphore::guard::callbacks::may_wait;
use crate::semaphore::guard::held::Held;
use crate::semaphore::guard::state::State;
use crate::semaphore::guard::{DROP_TIMEOUT, ReleaseKind};
use crate::semaphore::pace::Pace;
use crate::semaphore::polling::begin_wait;
use crate::semaphore::pooled;
use crate::stop::{Registration, StopToken};
use crate::timer::Timer;
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait};

/// A handle to a renewer. Clones share the guards and the loop that renews them.
pub(in crate::semaphore) struct Renewer<L> {
    handle: Arc<Handle<L>>,
    /// Ends the waits of this handle.
    stop: Option<StopToken>,
    pace: Pace,
}

impl<L> Renewer<L> {
    /// The same renewer, with waits that end when `stop` is stopped.
    pub(in crate::semaphore) fn stopped_by(&self, stop: &StopToken) -> Self {
        Self {
            stop: Some(stop.clone()),
            ..self.clone()
        }
    }

    /// The same renewer, with waits that ask the database at least once per `interval`.
    pub(super) fn polling_within(&self, interval: Duration) -> Self {
        let pace = Pace {
            interval,
            ..self.pace
        };
        Self {
            pace,
            ..self.clone()
        }
    }

    /// The same renewer, with waits that begin with the longest pauses.
    pub(in crate::semaphore) fn patient(&self) -> Self {
        let pace = Pace {
            patient: true,
            ..self.pace
        };
        Self {
            pace,
            ..self.clone()
        }
    }

    pub(in crate::semaphore) fn stop(&self) -> Option<&StopToken> {
        self.stop.as_ref()
    }

    pub(in crate::semaphore) fn interval(&self) -> Duration {
        self.pace.interval
    }

    pub(in crate::semaphore) fn check_interval(&self) -> Result<(), Error> {
        let (shortest, longest) = (SHORTEST_POLL_INTERVAL, LONGEST_POLL_INTERVAL);
        if (shortest..=longest).contains(&self.pace.interval) {
            return Ok(());
        }
        Err(Error::InvalidInterval {
            subject: "poll interval",
            requested: self.pace.interval,
            shortest,
            longest,
        })
    }

    /// A token that is stopped when `stop`, or the token of this handle, is stopped while the registration lives.
    pub(in crate::semaphore) fn child_of_both(
        &self,
        stop: &StopToken,
    ) -> (StopToken, Option<Registration>) {
        let child = stop.child();
        let registration = self.stop().map(|own| {
            let child = child.clone();
            own.on_stop(move || child.stop())
        });
        (child, registration)
    }

    pub(in crate::semaphore) fn begin_activity(&self) -> Active {
        self.activity().begin()
    }

    pub(in crate::semaphore) fn activity(&self) -> &Activity {
        self.shared().activity()
    }

    /// This renewer, for a shutdown.
    pub(super) fn downgrade(&self) -> WeakRenewer<L> {
        WeakRenewer::new(self.shared())
    }

    pub(super) fn shared(&self) -> &Arc<Shared<L>> {
        &self.handle.0
    }

    #[cfg(feature = "_async_pool")]
    pub(super) fn pool(&self) -> &L {
        self.shared().connections().pool()
    }
}

impl<L: Lender> Renewer<L> {
    /// Sends nothing to the database.
    pub(super) fn new(pool: L) -> Self {
        Self {
            handle: Arc::new(Handle(Arc::new(Shared::new(pool)))),
            stop: None,
            pace: Pace::default(),
        }
    }

    /// Acquires a slot if one is free. If the future is dropped, the slot is released.
    pub(super) async fn try_acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
    ) -> Result<Option<Held>, Error> {
        let active = self.begin_activity();
        let connections = self.shared().connections();
        let acquired = pooled::try_lease(connections, self.stop(), semaphore, lease);
        let slot = counted(self.activity(), acquired).await?;
        slot.map(|slot| self.hold(slot, lease, active)).transpose()
    }

    /// Waits for a slot without a connection, and acquires it. If the future is dropped, the slot is released.
    pub(in crate::semaphore) async fn acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        wait: Wait,
    ) -> Result<Held, Error> {
        self.check_interval()?;
        let active = self.begin_activity();
        let connections = self.shared().connections();
        let acquired = pooled::lease(connections, self.stop(), semaphore, lease, wait, self.pace);
        let slot = counted(self.activity(), acquired).await?;
        self.hold(slot, lease, active)
    }

    /// Borrows a connection of the pool, unless the handle is stopped.
    pub(in crate::semaphore) async fn borrow(
        &self,
        semaphore: &Semaphore,
    ) -> Result<Borrowed<L>, Error> {
        let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(self.stop());
        self.shared().connections().borrow(&waiting).await
    }

    /// Fails with [`Error::Stopped`] when the handle is stopped.
    pub(in crate::semaphore) fn check_stop(&self, semaphore: &Semaphore) -> Result<(), Error> {
        let waiting = begin_wait(semaphore, Wait::No)?;
        waiting.stopped_by(self.stop()).check_stop()
    }

    /// Has a slot released that was not used, also before the end of its minimum hold time, and after a stop. That is retried
    /// in the background until the lease ends, for a minute at most.
    pub(in crate::semaphore) fn release_unused(&self, slot: &Slot, lease: Duration) {
        let unused = ReleaseKind::Unused;
        let released = self.shared().release_in_background(slot, unused, lease);
        await_release::<L>(&released);
    }

    /// Renews the slot from now on.
    pub(in crate::semaphore) fn hold(
        &self,
        slot: Slot,
        lease: &LeaseOptions,
        active: Active,
    ) -> Result<Held, Error> {
        let state = Arc::new(State::new(&slot));
        let renewer = Arc::clone(&self.handle) as _;
        let held = Held::new(slot.clone(), Arc::clone(&state), renewer, active);
        self.shared().add(slot, lease, state)?;
        Ok(held)
    }
}

/// Waits for a release in the background, for a short time, if the connections block. It is retried after that too.
pub(in crate::semaphore) fn await_release<L: Lender>(released: &Receiver<()>) {
    let blocks = !<L::Connection as HasEngine>::LockTimer::MAY_STALL;
    if blocks && may_wait() {
        let _ = released.recv_timeout(DROP_TIMEOUT);
    }
}

impl<L> Clone for Renewer<L> {
    fn clone(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            stop: self.stop.clone(),
            pace: self.pace,
        }
    }
}
