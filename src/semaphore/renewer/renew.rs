//! Renewal of all slots of a renewer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::shared::{RenewedSlot, Shared};
use crate::Error;
use crate::cancel::unless_dropped;
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::pooled::discard_if_unusable;
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::guard::state::State;
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::timer::Timer;

/// A renewal that failed is retried after a tenth of the shortest lease, within these bounds.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(10);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

type Engine<L> = <<L as Lender>::Connection as HasEngine>::LockEngine;
type LockTimer<L> = <<L as Lender>::Connection as HasEngine>::LockTimer;

impl<L: Lender> Shared<L> {
    /// Renews all slots with one statement, and sets the time of the next renewal.
    pub(super) async fn renew_all(&self) {
        self.remove_lost();
        let Some((leases, shortest, remaining)) = self.leases() else {
            return;
        };
        let timeout = remaining.min(shortest / 6);
        let retry_delay = (shortest / 10).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        let pause = match self.renew(&leases, timeout).await {
            Ok(true) => shortest / 3,
            // Another session had a row locked, or there was no answer.
            Ok(false) => retry_delay,
            Err(error) => {
                tracing::warn!(%error, guards = leases.len(), "slots not renewed; retrying");
                retry_delay
            }
        };
        // Guards that were added meanwhile may be due earlier.
        let mut inner = self.lock();
        let remaining = inner
            .slots
            .values()
            .map(|slot| slot.state.remaining())
            .min();
        let next = remaining.map_or(pause, |remaining| {
            pause.min(remaining / 3).max(MIN_RETRY_DELAY.min(pause))
        });
        inner.next_renewal = Some(Instant::now() + next);
    }

    /// All leases, the length of the shortest, and the time until the first one ends. `None` without guards.
    fn leases(&self) -> Option<(Vec<RenewalRequest>, Duration, Duration)> {
        let mut inner = self.lock();
        let slots = || inner.slots.values();
        let remaining = slots().map(|slot| slot.state.remaining()).min();
        let shortest = slots().map(|slot| slot.lease).min();
        let leases = slots().map(RenewedSlot::renewal).collect();
        let found = shortest.zip(remaining);
        if found.is_none() {
            inner.next_renewal = None;
        }
        found.map(|(shortest, remaining)| (leases, shortest, remaining))
    }

    /// Removes the slots whose leases have ended, after a pause of the process for example: a lost guard is
    /// not renewed. Asks the guards without the lock, as a callback may drop another guard.
    fn remove_lost(&self) {
        let slots: Vec<(Uuid, Arc<State>)> = {
            let inner = self.lock();
            let slots = inner.slots.iter();
            slots
                .map(|(token, slot)| (*token, Arc::clone(&slot.state)))
                .collect()
        };
        for (token, state) in slots {
            if !state.is_held() {
                self.lock().slots.remove(&token);
            }
        }
    }

    /// Returns whether all slots that are still held have a new lease.
    async fn renew(&self, leases: &[RenewalRequest], timeout: Duration) -> Result<bool, Error> {
        let mut conn = self.lend(timeout).await?;
        let started = Instant::now();
        let limit = self.answer_limit();
        let renewing = renew_batch::<L>(&mut conn, leases);
        let Some(answers) = LockTimer::<L>::answer_within(limit, renewing).await else {
            let guards = leases.len();
            tracing::warn!(?limit, guards, "no answer to a renewal; retrying");
            return Ok(false);
        };
        let answers = discard_if_unusable(&mut *conn, answers)?;
        let clock_resolution = Engine::<L>::clock_resolution(&mut conn);
        drop(conn);
        Ok(self.confirm(leases, answers, started, clock_resolution))
    }

    /// Extends the leases that the database has extended in the statement that was sent at `started`, and marks the guards of
    /// others as lost. Returns whether all that are still held have a new lease.
    fn confirm(
        &self,
        leases: &[RenewalRequest],
        answers: Vec<RenewalResult>,
        started: Instant,
        clock_resolution: Duration,
    ) -> bool {
        let mut remaining: HashMap<Vec<u8>, i64> = answers
            .into_iter()
            .map(|renewed| (renewed.token, renewed.remaining_us))
            .collect();
        let mut confirmed = Vec::new();
        let mut lost = Vec::new();
        let mut all_renewed = true;
        let mut inner = self.lock();
        for lease in leases {
            let token = Uuid::from_bytes(lease.token);
            let remaining_us = remaining.remove(lease.token.as_slice());
            let Some(slot) = inner.slots.get(&token) else {
                continue;
            };
            if let Some(remaining_us) = remaining_us.and_then(|us| u64::try_from(us).ok()) {
                let lease_us = lease.lease_us.unsigned_abs();
                let remaining_us = remaining_us.min(lease_us);
                // Less than the lease when another session had the row locked.
                all_renewed &= remaining_us > lease_us / 4 * 3;
                let remaining =
                    Duration::from_micros(remaining_us).saturating_sub(clock_resolution);
                confirmed.push((Arc::clone(&slot.state), started + remaining));
            } else {
                lost.extend(inner.slots.remove(&token));
            }
        }
        drop(inner);
        for (state, deadline) in confirmed {
            state.confirm(deadline);
        }
        for slot in lost {
            slot.state.revoke();
        }
        all_renewed
    }
}

async fn renew_batch<L: Lender>(
    conn: &mut L::Connection,
    leases: &[RenewalRequest],
) -> Result<Vec<RenewalResult>, Error> {
    unless_dropped!(conn, |conn| Engine::<L>::renew_batch(conn, leases))
}
