//! New leases for the guards of a pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;
use uuid::Uuid;

use super::{Inner, Keeper, renewal};
use crate::Error;
use crate::semaphore::backend::{RenewalRequest, SemaphoreBackend};
use crate::semaphore::guard::state::State;

/// A renewal that failed is tried again after a tenth of the shortest lease, within these bounds.
const SOONEST_RETRY: Duration = Duration::from_millis(10);
const LATEST_RETRY: Duration = Duration::from_secs(2);

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Keeper<C> {
    /// One statement for all guards.
    pub(super) fn renew_all(&self) {
        let states = |inner: &Inner| -> Vec<(Uuid, Arc<State>)> {
            let kept = inner.kept.iter();
            kept.map(|(token, kept)| (*token, Arc::clone(&kept.state)))
                .collect()
        };
        // A pause of the process may have ended leases: what nobody holds is not renewed. Whoever is lost
        // is told so without the lock: a callback may drop other guards.
        let all = states(&self.lock());
        let ended: Vec<Uuid> = all
            .iter()
            .filter(|(_, state)| !state.is_held())
            .map(|(token, _)| *token)
            .collect();
        let (leases, shortest, patience) = {
            let mut inner = self.lock();
            for token in ended {
                inner.kept.remove(&token);
            }
            let leases: Vec<RenewalRequest> = inner.kept.values().map(renewal).collect();
            let shortest = inner.kept.values().map(|kept| kept.lease).min();
            let patience = inner.kept.values().map(|kept| kept.state.remaining()).min();
            let Some(shortest) = shortest else {
                inner.due = None;
                return;
            };
            (leases, shortest, patience.unwrap_or_default())
        };
        let soon = (shortest / 10).clamp(SOONEST_RETRY, LATEST_RETRY);
        let pause = match self.renew(&leases, patience.min(shortest / 6)) {
            Ok(true) => shortest / 3,
            // Another session had a row locked.
            Ok(false) => soon,
            Err(error) => {
                tracing::warn!(%error, guards = leases.len(), "slots not renewed; trying again");
                soon
            }
        };
        // Guards that came meanwhile may be due earlier.
        let mut inner = self.lock();
        let left = inner.kept.values().map(|kept| kept.state.remaining()).min();
        let next = left.map_or(pause, |left| {
            pause.min(left / 3).max(SOONEST_RETRY.min(pause))
        });
        inner.due = Some(Instant::now() + next);
    }

    /// Whether all that are still ours have a new lease.
    fn renew(&self, leases: &[RenewalRequest], patience: Duration) -> Result<bool, Error> {
        let mut conn = self.pool.get_timeout(patience)?;
        let begun = Instant::now();
        let answers = C::renew_batch(&mut conn, leases)?;
        drop(conn);
        let mut left: HashMap<Vec<u8>, i64> = answers
            .into_iter()
            .map(|renewed| (renewed.token, renewed.remaining_us))
            .collect();
        let mut confirmed = Vec::new();
        let mut lost = Vec::new();
        let mut all = true;
        let mut inner = self.lock();
        for lease in leases {
            let token = Uuid::from_bytes(lease.token);
            let left = left.remove(lease.token.as_slice());
            let Some(kept) = inner.kept.get(&token) else {
                continue;
            };
            // What is left can be less than a lease: another session had the row locked.
            if let Some(left) = left.and_then(|left| u64::try_from(left).ok()) {
                let left = left.min(lease.lease_us.unsigned_abs());
                all &= left > lease.lease_us.unsigned_abs() / 4 * 3;
                let left = Duration::from_micros(left).saturating_sub(C::CLOCK_RESOLUTION);
                confirmed.push((Arc::clone(&kept.state), begun + left));
            } else {
                lost.extend(inner.kept.remove(&token));
            }
        }
        drop(inner);
        for (state, deadline) in confirmed {
            state.confirm(deadline);
        }
        for kept in lost {
            kept.state.take_away();
        }
        Ok(all)
    }
}
