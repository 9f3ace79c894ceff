//! A held slot, which is renewed during the work and reported to the coordinator.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use diesel_locks::prelude::*;
use diesel_locks::{RetryPolicy, Slot};
use program_support::connection::AnyConnection;
use program_support::processes::{is_stop_requested, now, report};

use crate::job::{Gate, Held, Noticed, Report};

/// Why work with a slot ended early.
#[derive(Debug)]
pub(crate) enum StopReason {
    /// The node must end.
    Stopped,
    /// The worker no longer holds the slot or the list.
    Stale(Noticed),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for StopReason {}

/// Which slot is requested, and what is checked while it is held.
pub(crate) struct SlotRequest {
    pub(crate) gate: Gate,
    pub(crate) semaphore: Semaphore,
    pub(crate) lease: LeaseOptions,
    /// Of the lease, and of its renewals.
    pub(crate) duration: Duration,
    /// A worker that has lost the slot is stopped when it commits.
    pub(crate) fenced: bool,
    /// It is stopped when it renews.
    pub(crate) renew_checked: bool,
}

impl SlotRequest {
    /// Acquires a slot if one is free, works with it, and releases it.
    pub(crate) fn with_slot(
        &self,
        conn: &mut AnyConnection,
        work: impl FnOnce(&mut LeasedSlot<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(slot) = conn.try_acquire_slot(&self.semaphore, self.lease.clone())? else {
            return Ok(());
        };
        let mut slot = LeasedSlot {
            conn,
            slot,
            request: self,
            lost: false,
        };
        slot.report_held();
        if let Err(error) = work(&mut slot) {
            match error.downcast::<StopReason>()? {
                StopReason::Stopped => {}
                // The list will be queued again, because the slot is no longer held.
                StopReason::Stale(noticed) => report(&Report::Stale(noticed)),
            }
        }
        slot.release()
    }
}

pub(crate) struct LeasedSlot<'a> {
    pub(crate) conn: &'a mut AnyConnection,
    pub(crate) slot: Slot,
    request: &'a SlotRequest,
    /// Whether the slot is lost, and the work continues.
    lost: bool,
}

impl LeasedSlot<'_> {
    /// Renews the slot when a third of its lease has passed. Call it from inner loops.
    pub(crate) fn renew_if_due(&mut self) -> Result<()> {
        if is_stop_requested() {
            bail!(StopReason::Stopped);
        }
        let lease = self.request.duration;
        if self.lost || self.slot.remaining() > lease * 2 / 3 {
            return Ok(());
        }
        match self.conn.renew_slot(&mut self.slot, lease) {
            Ok(_) => self.report_held(),
            Err(error) if error.is_slot_lost() && self.request.renew_checked => {
                bail!(StopReason::Stale(Noticed::Renewing))
            }
            Err(error) if error.is_slot_lost() => self.lost = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Runs a transaction that commits only if the slot is still held, and retries it when the database aborts it.
    pub(crate) fn transaction(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> Result<()>,
    ) -> Result<()> {
        let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(10));
        let (slot, fenced) = (&self.slot, self.request.fenced);
        self.conn.run_transaction(retried, |conn| {
            if fenced {
                match conn.pin_slot(slot) {
                    Err(error) if error.is_slot_lost() => {
                        bail!(StopReason::Stale(Noticed::Committing))
                    }
                    pinned => pinned?,
                }
            }
            work(conn)
        })
    }

    /// Releases the slot. Whether it was still held does not matter, because the work is already committed or refused.
    fn release(self) -> Result<()> {
        report(&Report::Left {
            gate: self.request.gate,
            fence: self.slot.fence(),
            at: now(),
        });
        match self.conn.release_slot(self.slot) {
            Err(error) if !error.is_slot_lost() => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn report_held(&self) {
        // In this order, so that a pause between the two makes the reported time shorter, not longer.
        let from = now();
        let held = Held {
            slot: self.slot.number(),
            fence: self.slot.fence(),
            from,
            until: from + self.slot.remaining(),
        };
        report(&Report::Held(self.request.gate, held));
    }
}
