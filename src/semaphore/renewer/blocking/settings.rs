//! The settings of a renewer's handle, and what helpers over renewers need.

use std::time::Duration;

use diesel::r2d2::R2D2Connection;

use super::SlotRenewer;
use crate::lender::blocking::R2d2Pool;
use crate::limits::{LONGEST_POLL_INTERVAL, SHORTEST_POLL_INTERVAL};
use crate::semaphore::renewer::generic::Renewer;
use crate::semaphore::renewer::weak::WeakRenewer;

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
    /// 10 ms to a day. With any other duration the methods that wait return [`Error::InvalidInterval`](crate::Error::InvalidInterval).
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
        Self(self.0.polling_within(interval))
    }

    /// This renewer, for a shutdown.
    pub(crate) fn downgrade(&self) -> WeakRenewer<R2d2Pool<C>> {
        self.0.downgrade()
    }

    /// The renewer, whatever the type of its connections.
    pub(in crate::semaphore) fn generic(&self) -> &Renewer<R2d2Pool<C>> {
        &self.0
    }
}
