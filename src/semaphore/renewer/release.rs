//! Release of slots whose guards are dropped, and of all slots at a shutdown.

use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;

use super::pending_release::PendingRelease;
use super::shared::{RenewedSlot, Shared, renewal};
use crate::engine::HasBlockingEngine;
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::guard::ReleaseKind;
use crate::semaphore::holding;
use crate::semaphore::polling::notify_released;
use crate::semaphore::renewal::RenewalRequest;
use crate::{Error, Slot};

/// When a release that failed is retried.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long a release in the background waits for a connection.
const POOL_TIMEOUT: Duration = Duration::from_millis(50);

/// The slot of a guard that was released by another than its holder.
pub(super) struct CutSlot {
    pub(super) slot: Slot,
    /// Whether the guard was not lost.
    pub(super) was_held: bool,
    pub(super) is_released: bool,
}

impl<C: HasBlockingEngine + R2D2Connection + Send + 'static> Shared<C> {
    /// Releases the slots. Retries later those that another session has locked, or all after an error.
    pub(super) fn release_pending(&self, mut pending: Vec<PendingRelease>) {
        if let Err(error) = self.release_now(&mut pending) {
            tracing::debug!(%error, "slots not released; retrying");
        }
        pending.retain(|pending| Instant::now() < pending.deadline);
        if !pending.is_empty() {
            let mut inner = self.lock();
            inner.pending_releases.append(&mut pending);
            inner.next_release = Some(Instant::now() + RETRY_DELAY);
        }
    }

    /// Releases the slots, and leaves those that another session has locked.
    fn release_now(&self, pending: &mut Vec<PendingRelease>) -> Result<(), Error> {
        let used = |pending: &PendingRelease| pending.kind == ReleaseKind::Used;
        let slots = pending.iter().filter(|pending| used(pending));
        let slots: Vec<&Slot> = slots.map(|pending| &pending.slot).collect();
        if !slots.is_empty() {
            let mut released = self.release_batch(&slots, POOL_TIMEOUT)?.into_iter();
            pending.retain(|pending| !used(pending) || released.next() == Some(false));
        }
        while let Some(position) = pending.iter().position(|pending| !used(pending)) {
            let mut conn = self.pool().get_timeout(POOL_TIMEOUT)?;
            let unused = &pending[position].slot;
            C::block_on(holding::release_unused(&mut *conn, unused))?;
            pending.remove(position);
        }
        Ok(())
    }

    /// Releases the slots of all guards, and returns how many were held and are released.
    pub(super) fn release_guards(&self) -> usize {
        let cut = self.release_held(self.pool().connection_timeout());
        let released = cut.iter().filter(|cut| cut.was_held && cut.is_released);
        released.count()
    }

    /// Releases the slots of all guards, within `timeout` for a connection, and returns them.
    pub(super) fn release_held(&self, timeout: Duration) -> Vec<CutSlot> {
        let slots: Vec<RenewedSlot> = self.lock().slots.drain().map(|(_, slot)| slot).collect();
        let mut cut = Vec::new();
        for RenewedSlot { slot, state, .. } in slots {
            // Read by `remaining`: `is_held` would call the callbacks of lost guards.
            let was_held = !state.remaining().is_zero();
            if state.mark_released() {
                cut.push(CutSlot {
                    slot,
                    was_held,
                    is_released: false,
                });
            }
        }
        if cut.is_empty() {
            return cut;
        }
        let batch: Vec<&Slot> = cut.iter().map(|cut| &cut.slot).collect();
        match self.release_batch(&batch, timeout) {
            Ok(released) => {
                for (cut, released) in cut.iter_mut().zip(released) {
                    cut.is_released = released;
                }
            }
            Err(error) => {
                tracing::warn!(%error, slots = cut.len(), "slots not released; their leases end");
            }
        }
        cut
    }

    /// Releases the slots with one statement, and returns for each whether it is released. One that another
    /// session has locked is not.
    fn release_batch(&self, slots: &[&Slot], timeout: Duration) -> Result<Vec<bool>, Error> {
        let batch: Vec<RenewalRequest> = slots.iter().map(|slot| renewal(slot, 0)).collect();
        let mut conn = self.pool().get_timeout(timeout)?;
        let locked = C::block_on(C::LockEngine::release_batch(&mut conn, &batch))?;
        drop(conn);
        let released = slots.iter().map(|slot| {
            let is_locked = locked.iter().any(|token| token == slot.token.as_bytes());
            if !is_locked {
                notify_released(&slot.semaphore, 1, Some(slot.number));
            }
            !is_locked
        });
        Ok(released.collect())
    }
}

#[cfg(all(test, feature = "_sqlite"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use diesel::SqliteConnection;

    use diesel::r2d2::event::CheckoutEvent;
    use diesel::r2d2::{ConnectionManager, HandleEvent, Pool};

    use super::*;
    use crate::semaphore::SemaphoreExt;
    use crate::semaphore::guard::state::State;
    use crate::{LeaseOptions, Semaphore};

    /// Counts the connections that are borrowed from a pool.
    #[derive(Debug, Default)]
    struct Checkouts(Arc<AtomicUsize>);

    impl HandleEvent for Checkouts {
        fn handle_checkout(&self, _: CheckoutEvent) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn release_without_guards_borrows_no_connection() {
        let checkouts = Arc::new(AtomicUsize::new(0));
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder()
            .max_size(1)
            .event_handler(Box::new(Checkouts(Arc::clone(&checkouts))))
            .build(manager)
            .expect("a pool");
        assert_eq!(Shared::new(pool).release_guards(), 0);
        assert_eq!(checkouts.load(Ordering::SeqCst), 0);
    }

    /// The leases of two have ended, and the thread has not noticed it yet.
    #[test]
    fn release_does_not_count_lost_guards() {
        const HOUR: Duration = Duration::from_secs(3600);
        let folder = tempfile::tempdir().expect("a folder");
        let url = folder.path().join("test.sqlite3").display().to_string();
        let manager = ConnectionManager::<SqliteConnection>::new(url);
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let mut conn = pool.get().expect("a connection");
        crate::migrate(&mut *conn).expect("migrate");
        let shared = Arc::new(Shared::new(pool.clone()));
        let now = Instant::now();
        for deadline in [now, now + HOUR, now] {
            let slot = conn.try_acquire_slot(&Semaphore::new("three", 3), LeaseOptions::new(HOUR));
            let mut slot = slot.expect("an answer").expect("free");
            slot.deadline = deadline;
            let state = Arc::new(State::new(&slot));
            let renewed = RenewedSlot {
                slot,
                lease: HOUR,
                lease_us: 1,
                state,
            };
            shared.lock().slots.insert(renewed.slot.token, renewed);
        }
        drop(conn);
        assert_eq!(shared.release_guards(), 1);
        let mut conn = pool.get().expect("a connection");
        assert_eq!(conn.held_slots("three").expect("rows"), []);
    }
}
