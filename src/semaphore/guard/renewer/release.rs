//! Slots whose guards are gone.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;

use super::{Keeper, Kept, renewal};
use crate::semaphore::backend::{RenewalRequest, SemaphoreBackend};
use crate::{Error, Slot, semaphore::acquire};

/// When a slot that could not be released is tried again.
const RELEASE_RETRY: Duration = Duration::from_millis(50);

/// A slot that is to be released.
pub(super) struct Leaving {
    pub(super) slot: Slot,
    pub(super) until: Instant,
    /// Dropped when it is done or given up.
    pub(super) _done: Sender<()>,
}

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Keeper<C> {
    /// One statement for all; those that another session has locked, or all when it fails, are tried again.
    pub(super) fn release_those(&self, mut leaving: Vec<Leaving>) {
        let slots: Vec<RenewalRequest> = leaving.iter().map(|one| asked(&one.slot)).collect();
        let still_ours = self
            .pool
            .get_timeout(Duration::from_millis(50))
            .map_err(Error::from)
            .and_then(|mut conn| C::release_batch(&mut conn, &slots));
        match still_ours {
            Ok(still_ours) => {
                leaving.retain(|one| {
                    let is_ours = still_ours
                        .iter()
                        .any(|token| token == one.slot.token.as_bytes());
                    if !is_ours {
                        acquire::notify_released(&one.slot.semaphore, 1, Some(one.slot.number));
                    }
                    is_ours
                });
            }
            Err(error) => tracing::debug!(%error, "slots not released; trying again"),
        }
        // A lease that has ended needs no release.
        leaving.retain(|one| Instant::now() < one.until);
        if !leaving.is_empty() {
            let mut inner = self.lock();
            inner.leaving.append(&mut leaving);
            inner.again = Some(Instant::now() + RELEASE_RETRY);
        }
    }

    /// Ends and releases all guards.
    pub(super) fn release_all(&self) -> usize {
        let kept: Vec<Kept> = self.lock().kept.drain().map(|(_, kept)| kept).collect();
        // Whoever has lost its slot, noticed or not, has none to release. Not asked by `is_held`, which would
        // tell of the loss.
        let mut all: Vec<(bool, Kept)> = kept
            .into_iter()
            .map(|kept| (!kept.state.remaining().is_zero(), kept))
            .collect();
        all.retain(|(_, kept)| kept.state.end());
        if all.is_empty() {
            return 0;
        }
        let slots: Vec<RenewalRequest> = all.iter().map(|(_, kept)| renewal(kept)).collect();
        let still_ours = self
            .pool
            .get()
            .map_err(Error::from)
            .and_then(|mut conn| C::release_batch(&mut conn, &slots));
        match still_ours {
            Ok(still_ours) => all
                .iter()
                .filter(|(held, kept)| {
                    let token = kept.slot.token.as_bytes();
                    let is_free = !still_ours.iter().any(|left| left == token);
                    if is_free {
                        acquire::notify_released(&kept.slot.semaphore, 1, Some(kept.slot.number));
                    }
                    *held && is_free
                })
                .count(),
            Err(error) => {
                tracing::warn!(%error, slots = slots.len(), "slots not released; their leases end");
                0
            }
        }
    }
}

/// What is asked of the database when no new lease is wanted.
fn asked(slot: &Slot) -> RenewalRequest {
    RenewalRequest {
        semaphore: slot.semaphore.clone(),
        number: slot.number_i32(),
        token: slot.token.into_bytes(),
        lease_us: 0,
    }
}

#[cfg(all(test, feature = "sqlite"))]
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

    /// Counts the connections that are taken from a pool.
    #[derive(Debug, Default)]
    struct Taken(Arc<AtomicUsize>);

    impl HandleEvent for Taken {
        fn handle_checkout(&self, _: CheckoutEvent) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn without_guards_the_pool_is_not_asked() {
        let taken = Arc::new(AtomicUsize::new(0));
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder()
            .max_size(1)
            .event_handler(Box::new(Taken(Arc::clone(&taken))))
            .build(manager)
            .expect("a pool");
        assert_eq!(Keeper::new(pool).release_all(), 0);
        assert_eq!(taken.load(Ordering::SeqCst), 0);
    }

    /// The leases of two have ended, and the thread, which would notice, has not looked since.
    #[test]
    fn a_lost_slot_is_not_counted_as_released() {
        const HOUR: Duration = Duration::from_secs(3600);
        let folder = tempfile::tempdir().expect("a folder");
        let url = folder.path().join("test.sqlite3").display().to_string();
        let manager = ConnectionManager::<SqliteConnection>::new(url);
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let mut conn = pool.get().expect("a connection");
        crate::migrate(&mut *conn).expect("migrate");
        let keeper = Arc::new(Keeper::new(pool.clone()));
        let now = Instant::now();
        for deadline in [now, now + HOUR, now] {
            let slot = conn.try_acquire_slot(&Semaphore::new("three", 3), LeaseOptions::new(HOUR));
            let slot = slot.expect("an answer").expect("free");
            let kept = Kept {
                slot,
                lease: HOUR,
                lease_us: 1,
                state: Arc::new(State::new(deadline)),
            };
            keeper.lock().kept.insert(kept.slot.token, kept);
        }
        drop(conn);
        assert_eq!(keeper.release_all(), 1);
        let mut conn = pool.get().expect("a connection");
        assert_eq!(conn.held_slots("three").expect("rows"), []);
    }
}
