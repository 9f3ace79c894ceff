//! The settings of a renewer's handle, and what the helpers over renewers share.

use std::time::Duration;

use diesel::r2d2::R2D2Connection;

use super::SlotRenewer;
use crate::activity::{Active, Activity};
use crate::limits::{LONGEST_POLL_INTERVAL, SHORTEST_POLL_INTERVAL};
use crate::pooled::Borrowed;
use crate::semaphore::guard::{DROP_TIMEOUT, ReleaseKind};
use crate::semaphore::pace::Pace;
use crate::semaphore::polling::begin_wait;
use crate::stop::{Registration, StopToken};
use crate::{Error, Semaphore, SemaphoreExt, Slot, Wait};

impl<C: R2D2Connection + Send + 'static> SlotRenewer<C> {
    /// The shortest poll interval: 10 ms.
    pub const SHORTEST_POLL_INTERVAL: Duration = SHORTEST_POLL_INTERVAL;

    /// The longest poll interval: a day.
    pub const LONGEST_POLL_INTERVAL: Duration = LONGEST_POLL_INTERVAL;

    /// Returns a handle to the same renewer whose waits ask the database at least once per `interval`. The default is 1 s.
    ///
    /// A slot that another process releases is noticed after at most one interval; a slot that is released in this process,
    /// or whose lease ends, at once. [`acquire`](Self::acquire) begins with pauses of 10 to 100 ms; after a second they
    /// grow to a tenth of the time for which the holders have not changed, up to the interval.
    /// [`run_as_leader`](Self::run_as_leader) pauses for half an interval to an interval from the beginning.
    ///
    /// The first waiter of a process for a semaphore asks for all of them, at the shortest interval of those that wait.
    ///
    /// 10 ms to a day. With any other duration the methods that wait return [`Error::InvalidInterval`].
    ///
    /// ```
    /// use diesel_locks::SlotRenewer;
    /// use std::time::Duration;
    ///
    /// # use diesel::SqliteConnection;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # fn renewer(pool: Pool<ConnectionManager<SqliteConnection>>) -> SlotRenewer<SqliteConnection> {
    /// let renewer = SlotRenewer::new(pool).poll_interval(Duration::from_secs(5));
    /// # renewer
    /// # }
    /// ```
    #[must_use]
    pub fn poll_interval(&self, interval: Duration) -> Self {
        Self {
            pace: Pace {
                interval,
                ..self.pace
            },
            ..self.clone()
        }
    }

    /// A handle whose waits begin with the longest pauses.
    pub(in crate::semaphore) fn patient(&self) -> Self {
        Self {
            pace: Pace {
                patient: true,
                ..self.pace
            },
            ..self.clone()
        }
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
        let registration = self.stop.as_ref().map(|own| {
            let child = child.clone();
            own.on_stop(move || child.stop())
        });
        (child, registration)
    }

    /// What runs with this renewer and its clones.
    pub(crate) fn activity(&self) -> &Activity {
        self.handle.0.activity()
    }

    pub(in crate::semaphore) fn begin_activity(&self) -> Active {
        self.activity().begin()
    }
}

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<C> {
    /// Borrows a connection of the pool, unless the handle is stopped.
    pub(in crate::semaphore) fn borrow(&self, semaphore: &Semaphore) -> Result<Borrowed<C>, Error> {
        let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(self.stop.as_ref());
        self.shared().connections().borrow(&waiting)
    }

    /// Fails with [`Error::Stopped`] when the handle is stopped.
    pub(in crate::semaphore) fn check_stop(&self, semaphore: &Semaphore) -> Result<(), Error> {
        let waiting = begin_wait(semaphore, Wait::No)?;
        waiting.stopped_by(self.stop.as_ref()).check_stop()
    }

    /// Has the thread release a slot that was not used, also before the end of its minimum hold time, and after a stop.
    /// Returns when the slot is released, or after a short time; the thread retries until the lease ends.
    pub(in crate::semaphore) fn release_unused(&self, slot: &Slot, lease: Duration) {
        let unused = ReleaseKind::Unused;
        let released = self.shared().release_in_background(slot, unused, lease);
        let _ = released.recv_timeout(DROP_TIMEOUT);
    }

    /// Releases the slots of all guards, within `timeout` for a connection, and returns those that were held and are
    /// released.
    pub(crate) fn cut_all(&self, timeout: Duration) -> Vec<Slot> {
        let cut = self.shared().release_held(timeout).into_iter();
        cut.filter(|cut| cut.was_held && cut.is_released)
            .map(|cut| cut.slot)
            .collect()
    }
}
