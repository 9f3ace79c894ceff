//! How often a waiter asks the database while the same holders keep all slots.
//!
//! A waiter attempts to acquire every 10 to 100 ms at first. Later it reads who holds the slots, and attempts to acquire
//! only when a slot may be free. While the holders do not change, the pause grows with the time for which they have not
//! changed. So a wait gets at most a tenth longer, and a standby that waits for hours looks once per interval.

use std::time::{Duration, Instant};

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::waiting::{Attempt, Waiting};
use crate::engine::Engine;
use crate::error::limits::FEW_SLOTS;
use crate::rt::backoff;
use crate::{Error, Semaphore};

/// The longest pause unless a renewer sets another one.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a waiter attempts to acquire without looking at the holders.
const EAGER: Duration = Duration::from_secs(1);

/// The shortest pause after a look at the holders.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// How many attempts follow a look that has shown a slot without a lease, if they are refused: a transaction holds it.
const ATTEMPTS_PER_LOOK: u32 = 10;

/// The part of the time without a change that a pause takes.
const PAUSE_DIVISOR: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    /// Whether all pauses after the first attempts are that long.
    pub(crate) patient: bool,
}

impl Pace {
    fn longest_pause(self, unchanged: Duration) -> Duration {
        if self.patient {
            self.interval
        } else {
            let pause = (unchanged / PAUSE_DIVISOR).max(MIN_PAUSE);
            pause.min(self.interval)
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: POLL_INTERVAL,
            patient: false,
        }
    }
}

pub(crate) struct Holders {
    /// `None`: makes attempts only. For slots of transactions, whose holders can't be read.
    pace: Option<Pace>,
    attempts: u32,
    /// Number and fence of each.
    seen: Vec<(i32, i64)>,
    unchanged_since: Instant,
}

impl Holders {
    pub(crate) fn new(pace: Option<Pace>) -> Self {
        Self {
            pace,
            attempts: 0,
            seen: Vec::new(),
            unchanged_since: Instant::now(),
        }
    }

    /// Returns the pause before the next look if all slots are leased, so that an attempt would be refused. Returns `None`
    /// without a query when an attempt is due.
    pub(crate) async fn look(
        &mut self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        turn: Attempt,
    ) -> Result<Option<Duration>, Error> {
        unless_dropped!(engine, |engine| self
            .hold_all(engine, semaphore, waiting, turn))
    }

    async fn hold_all(
        &mut self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        turn: Attempt,
    ) -> Result<Option<Duration>, Error> {
        let Some(pace) = self.pace else {
            return Ok(None);
        };
        let eager = !pace.patient && waiting.elapsed() < EAGER;
        // Of many slots, all rows would be read.
        let many = semaphore.permits_i32() > FEW_SLOTS;
        if eager || many || turn.is_first || turn.released.is_some() || waiting.is_over() {
            return Ok(None);
        }
        if self.attempts > 0 {
            self.attempts -= 1;
            return Ok(None);
        }
        let held = engine.list_held_nowait(semaphore.name()).await?;
        // Otherwise another session has the table locked.
        let Some(held) = held else {
            return Ok(None);
        };
        if held.len() < usize::try_from(semaphore.permits()).unwrap_or(usize::MAX) {
            self.attempts = ATTEMPTS_PER_LOOK;
            return Ok(None);
        }
        let seen = held
            .iter()
            .map(|(number, fence, _)| (*number, *fence))
            .collect();
        if seen != self.seen {
            self.seen = seen;
            self.unchanged_since = Instant::now();
        }
        let first_end = held
            .iter()
            .map(|(_, _, remaining_us)| *remaining_us)
            .min()
            .unwrap_or(0);
        let first_end = Duration::from_micros(u64::try_from(first_end).unwrap_or(0));
        let pause = backoff::jittered(pace.longest_pause(self.unchanged_since.elapsed()));
        Ok(Some(pause.min(first_end + Duration::from_millis(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_tenth_of_the_time_without_a_change() {
        let pause = |pace: Pace, seconds| pace.longest_pause(Duration::from_secs(seconds));
        let pauses = [0, 1, 5, 10, 1000].map(|seconds| pause(Pace::default(), seconds).as_millis());
        assert_eq!(pauses, [100, 100, 500, 1000, 1000]);
        let interval = Duration::from_secs(20);
        let patient = Pace {
            interval,
            patient: true,
        };
        assert_eq!(pause(patient, 0), interval);
        let interval = Duration::from_millis(10);
        let short = Pace {
            interval,
            patient: false,
        };
        assert_eq!(pause(short, 1000), interval);
    }
}
