//! A barrier for all connections, used once. A participant that is dropped after an error counts as arrived.

use std::sync::{Condvar, Mutex, PoisonError};

/// Participants wait here for each other.
pub(crate) struct AbortableBarrier {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl AbortableBarrier {
    pub(crate) fn of(connections: usize) -> Self {
        Self {
            missing: Mutex::new(connections),
            complete: Condvar::new(),
        }
    }

    /// Call it once for each connection.
    pub(crate) fn participant(&self) -> Participant<'_> {
        Participant {
            barrier: self,
            arrived: false,
        }
    }
}

/// Counts as arrived when it is dropped: after an error the others must not wait for ever.
pub(crate) struct Participant<'a> {
    barrier: &'a AbortableBarrier,
    arrived: bool,
}

impl Participant<'_> {
    /// Waits until all participants have arrived. Returns at once if it has waited before.
    pub(crate) fn wait(&mut self) {
        if self.arrived {
            return;
        }
        self.arrive();
        let missing = self.barrier.missing.lock();
        let missing = missing.unwrap_or_else(PoisonError::into_inner);
        drop(
            self.barrier
                .complete
                .wait_while(missing, |missing| *missing > 0),
        );
    }

    fn arrive(&mut self) {
        self.arrived = true;
        let missing = self.barrier.missing.lock();
        *missing.unwrap_or_else(PoisonError::into_inner) -= 1;
        self.barrier.complete.notify_all();
    }
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        if !self.arrived {
            self.arrive();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::AbortableBarrier;

    #[test]
    fn all_arrive_before_one_continues() {
        let barrier = AbortableBarrier::of(4);
        let arrived = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut participant = barrier.participant();
                    arrived.fetch_add(1, Ordering::SeqCst);
                    participant.wait();
                    assert_eq!(arrived.load(Ordering::SeqCst), 4);
                    participant.wait();
                });
            }
        });
    }

    #[test]
    fn a_dropped_participant_counts_as_arrived() {
        let barrier = AbortableBarrier::of(2);
        drop(barrier.participant());
        barrier.participant().wait();
    }
}
