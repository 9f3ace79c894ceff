//! A held slot, which is renewed during the work and reported to the coordinator.

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{RetryPolicy, Slot};
use program_support::connection::AnyConnection;
use program_support::processes::{is_stop_requested, report};

use crate::job::{Gate, Held, Moment, Noticed, Report, StopReason};

/// The number of retries of a transaction that the database aborted.
const RETRIES: u32 = 10;

/// When a worker that has lost its slot is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Safety {
    /// When it commits.
    pub(crate) fenced: bool,
    /// When it renews.
    pub(crate) renew_checked: bool,
}

pub(crate) struct LeasedSlot<'a> {
    pub(crate) conn: &'a mut AnyConnection,
    slot: Slot,
    gate: Gate,
    lease: Duration,
    safety: Safety,
    /// Whether the slot is lost, and the work continues.
    lost: bool,
}

impl<'a> LeasedSlot<'a> {
    /// Acquires a slot if one is free, without waiting.
    pub(crate) fn acquire(
        conn: &'a mut AnyConnection,
        gate: Gate,
        semaphore: &Semaphore,
        (lease, duration): (LeaseOptions, Duration),
        safety: Safety,
    ) -> Result<Option<Self>, diesel_locks::Error> {
        let Some(slot) = conn.try_acquire_slot(semaphore, lease)? else {
            return Ok(None);
        };
        let slot = Self {
            conn,
            slot,
            gate,
            lease: duration,
            safety,
            lost: false,
        };
        slot.report_held();
        Ok(Some(slot))
    }

    pub(crate) fn fence(&self) -> i64 {
        self.slot.fence()
    }

    pub(crate) fn slot_number(&self) -> usize {
        self.slot.number() as usize
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.safety.fenced
    }

    /// Renews the slot when a third of its lease has passed. Call it from inner loops.
    pub(crate) fn renew_if_due(&mut self) -> Result<(), StopReason> {
        if is_stop_requested() {
            return Err(StopReason::Stopped);
        }
        if self.lost || self.slot.remaining() > self.lease * 2 / 3 {
            return Ok(());
        }
        match self.conn.renew_slot(&mut self.slot, self.lease) {
            Ok(_) => {
                self.report_held();
                Ok(())
            }
            Err(error) if error.is_slot_lost() && self.safety.renew_checked => {
                Err(StopReason::Stale(Noticed::Renewing))
            }
            Err(error) if error.is_slot_lost() => {
                self.lost = true;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Renews the slot; returns whether it is still held.
    pub(crate) fn is_held(&mut self) -> Result<bool, diesel_locks::Error> {
        match self.conn.renew_slot(&mut self.slot, self.lease) {
            Ok(_) => Ok(true),
            Err(error) if error.is_slot_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs a transaction that commits only if the slot is still held. It checks the slot first, which on SQLite
    /// acquires the write lock, and retries when the database aborts the transaction.
    pub(crate) fn transaction<T>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> Result<T, StopReason>,
    ) -> Result<T, StopReason> {
        let (slot, fenced) = (&self.slot, self.safety.fenced);
        let mut retries = 0;
        loop {
            let result = self.conn.transaction(|conn| {
                if fenced {
                    conn.pin_slot(slot)?;
                }
                work(conn)
            });
            let Err(StopReason::Failed(error)) = result else {
                return result;
            };
            match error.downcast_ref::<diesel_locks::Error>() {
                Some(error) if error.is_slot_lost() => {
                    return Err(StopReason::Stale(Noticed::Committing));
                }
                Some(error) if error.is_retryable() && retries < RETRIES => retries += 1,
                _ => return Err(StopReason::Failed(error)),
            }
        }
    }

    /// Runs one statement, and retries it when the database aborts it: on InnoDB two statements that change different
    /// rows of a table with a secondary index may deadlock, even outside transactions.
    pub(crate) fn statement<T>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> QueryResult<T>,
    ) -> Result<T, diesel_locks::Error> {
        let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(RETRIES));
        self.conn.run_transaction(retried, |conn| Ok(work(conn)?))
    }

    /// Releases the slot. Whether it was still held does not matter, because the work is already committed or refused.
    pub(crate) fn release(self) -> Result<(), diesel_locks::Error> {
        report(&Report::Left {
            gate: self.gate,
            fence: self.fence(),
            at: Moment::now(),
        });
        match self.conn.release_slot(self.slot) {
            Ok(_) => Ok(()),
            Err(error) if error.is_slot_lost() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn report_held(&self) {
        // In this order, so that a pause between the two makes the reported time shorter, not longer.
        let from = Moment::now();
        let until = from.after(self.slot.remaining());
        report(&Report::Held(
            self.gate,
            Held {
                slot: self.slot.number(),
                fence: self.slot.fence(),
                from,
                until,
            },
        ));
    }
}
