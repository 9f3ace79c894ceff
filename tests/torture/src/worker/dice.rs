//! What a worker does next, and for how long.

use std::thread::sleep;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use torture_history::{Task, Waiting, scene};

/// Decides, from the run's seed.
pub(crate) struct Dice(StdRng);

impl Dice {
    pub(crate) fn new(seed: u64, process: u32, thread: u32) -> Self {
        let own = (u64::from(process) << 32) | u64::from(thread);
        Self(StdRng::seed_from_u64(
            seed ^ own.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        ))
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    pub(crate) fn number(&mut self, numbers: std::ops::Range<u64>) -> u64 {
        self.0.random_range(numbers)
    }

    /// Does nothing for up to so many milliseconds.
    pub(crate) fn pause(&mut self, milliseconds: u64) {
        let longest = Duration::from_millis(milliseconds).as_nanos();
        let nanoseconds = self
            .0
            .random_range(0..u64::try_from(longest).unwrap_or(u64::MAX).max(1));
        sleep(Duration::from_nanos(nanoseconds));
    }

    pub(crate) fn task(&mut self) -> Task {
        match self.0.random_range(0..100) {
            0..26 => self.lock(),
            26..30 => Task::Purge,
            30..40 => self.renewed_lease(),
            40..55 => self.lease(),
            55..65 => Task::Ensured {
                lease_ms: *[300, scene::LONGEST_LEASE_MS]
                    .choose(&mut self.0)
                    .unwrap_or(&300),
            },
            65..75 => Task::Slot { wait: self.wait() },
            75..90 => Task::Pass {
                sequence: self.0.random_range(0..scene::SEQUENCES),
            },
            _ => self.transfer(),
        }
    }

    fn lock(&mut self) -> Task {
        let wanted = if self.percent(70) {
            1
        } else {
            self.0.random_range(2..=3)
        };
        let all: Vec<u32> = (0..scene::LOCKED_COUNTERS).collect();
        Task::Lock {
            counters: all.sample(&mut self.0, wanted).copied().collect(),
            kept: self.percent(50),
            wait: self.wait(),
        }
    }

    fn semaphore(&mut self) -> String {
        let semaphore = scene::LEASED.choose(&mut self.0);
        semaphore.map_or("", |semaphore| semaphore.name).to_owned()
    }

    fn renewed_lease(&mut self) -> Task {
        Task::Lease {
            semaphore: self.semaphore(),
            renewed: true,
            lease_ms: scene::LONGEST_LEASE_MS,
            wait: self.short_wait(),
        }
    }

    fn lease(&mut self) -> Task {
        Task::Lease {
            semaphore: self.semaphore(),
            renewed: false,
            lease_ms: self.0.random_range(100..400),
            wait: self.short_wait(),
        }
    }

    fn transfer(&mut self) -> Task {
        let all: Vec<u32> = scene::ACCOUNTS.collect();
        let two: Vec<u32> = all.sample(&mut self.0, 2).copied().collect();
        Task::Transfer {
            from: two[0],
            to: two[1],
        }
    }

    /// For what others hold for long at times: not everybody is to queue there.
    fn short_wait(&mut self) -> Waiting {
        match self.0.random_range(0..20) {
            0 => Waiting::Forever,
            1..13 => Waiting::AtMost(self.0.random_range(10..100)),
            _ => Waiting::No,
        }
    }

    fn wait(&mut self) -> Waiting {
        match self.0.random_range(0..10) {
            0..5 => Waiting::Forever,
            5..8 => Waiting::AtMost(self.0.random_range(20..1500)),
            _ => Waiting::No,
        }
    }
}
