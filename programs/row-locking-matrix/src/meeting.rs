//! A barrier for all connections that is used once, and does not wait for a connection that has failed.

use std::sync::{Condvar, Mutex, PoisonError};

/// The barrier.
pub(crate) struct Meeting {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl Meeting {
    pub(crate) fn of(connections: usize) -> Self {
        Self {
            missing: Mutex::new(connections),
            complete: Condvar::new(),
        }
    }

    /// The place of one connection. Call it once per connection.
    pub(crate) fn seat(&self) -> Seat<'_> {
        Seat {
            meeting: self,
            taken: false,
        }
    }
}

/// The place of one connection. It counts as taken when it is dropped, so that others do not wait forever after an
/// error.
pub(crate) struct Seat<'a> {
    meeting: &'a Meeting,
    taken: bool,
}

impl Seat<'_> {
    /// Waits until all seats are taken. Later calls do nothing.
    pub(crate) fn meet(&mut self) {
        if self.taken {
            return;
        }
        self.take();
        let missing = self.meeting.missing.lock();
        let missing = missing.unwrap_or_else(PoisonError::into_inner);
        drop(
            self.meeting
                .complete
                .wait_while(missing, |missing| *missing > 0),
        );
    }

    fn take(&mut self) {
        self.taken = true;
        let missing = self.meeting.missing.lock();
        *missing.unwrap_or_else(PoisonError::into_inner) -= 1;
        self.meeting.complete.notify_all();
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if !self.taken {
            self.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::Meeting;

    #[test]
    fn all_are_there_before_one_goes_on() {
        let meeting = Meeting::of(4);
        let arrived = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut seat = meeting.seat();
                    arrived.fetch_add(1, Ordering::SeqCst);
                    seat.meet();
                    assert_eq!(arrived.load(Ordering::SeqCst), 4);
                    seat.meet();
                });
            }
        });
    }

    #[test]
    fn nobody_waits_for_a_seat_that_was_given_up() {
        let meeting = Meeting::of(2);
        drop(meeting.seat());
        meeting.seat().meet();
    }
}
