//! Semaphores: what their bodies share.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{ListOptions, Slot};

use crate::support::Backend;

pub(crate) mod capacity;
pub(crate) mod fences;
pub(crate) mod guards;
pub(crate) mod leases;
pub(crate) mod permits;
pub(crate) mod queues;
pub(crate) mod registered_permits;
pub(crate) mod release_requests;
pub(crate) mod renewer_stop;
pub(crate) mod renewers;
pub(crate) mod rows;
pub(crate) mod several;
pub(crate) mod transaction_slots;
pub(crate) mod transactions;

/// Longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn one_hour() -> LeaseOptions {
    LeaseOptions::new(HOUR)
}

pub(crate) fn single_slot() -> Semaphore {
    Semaphore::new("one", 1)
}

/// For the held slots of one semaphore.
pub(crate) fn slots_of(semaphore: impl AsRef<str>) -> ListOptions {
    ListOptions::new().name(semaphore)
}

/// A slot that must be free.
#[track_caller]
pub(crate) fn acquire<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) -> Slot {
    conn.try_acquire_slot(semaphore, one_hour())
        .expect("an answer")
        .expect("a free slot")
}

pub(crate) fn is_full<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) -> bool {
    let slot = conn
        .try_acquire_slot(semaphore, one_hour())
        .expect("an answer");
    if let Some(slot) = &slot {
        conn.release_slot(slot).expect("it is ours");
    }
    slot.is_none()
}

/// The end of the lease, by the hand of a god: what is written is what the clock would have brought.
pub(crate) fn expire_lease<B: Backend>(conn: &mut B::Conn, slot: &Slot) {
    let changed = format!(
        "UPDATE diesel_locks_slots SET expires_us = 1, hold_until_us = 1 WHERE name = '{}' AND number = {}",
        slot.semaphore(),
        slot.number()
    );
    B::sql(conn, &changed);
}

/// Several connections that act at the same time; returns when all are done.
pub(crate) fn run_concurrently<B: Backend>(
    database: &std::sync::Arc<B>,
    connections: usize,
    act: impl Fn(&mut B::Conn, usize) + Send + Sync,
) {
    let together = std::sync::Barrier::new(connections);
    // Before the threads: the others would wait for ever for one that gets no connection.
    let mut all: Vec<_> = (0..connections).map(|_| database.connect()).collect();
    if B::ONE_WRITER {
        // On a busy machine their turns together take longer than 5 s.
        for conn in &mut all {
            B::sql(conn, "PRAGMA busy_timeout = 60000");
        }
    }
    std::thread::scope(|scope| {
        for (thread, mut conn) in all.into_iter().enumerate() {
            let (together, act) = (&together, &act);
            scope.spawn(move || {
                together.wait();
                act(&mut conn, thread);
            });
        }
    });
}
