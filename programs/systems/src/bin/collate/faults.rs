//! Kills processes, and pauses some for longer than their leases.

use std::time::Duration;

use program_support::processes::ChildProcess;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::Options;
use crate::job::Moment;

/// Something that happens at intervals, but each time only after another list was done. So it happens at most as often
/// as there are lists.
struct Interval {
    period: Duration,
    next: Moment,
    done: usize,
}

impl Interval {
    fn new(period: Duration, now: Moment) -> Self {
        Self {
            period,
            next: now.after(period),
            done: 0,
        }
    }

    fn is_due(&mut self, now: Moment, done: usize) -> bool {
        let is_due = now >= self.next && done > self.done;
        if is_due {
            self.next = now.after(self.period);
            self.done = done;
        }
        is_due
    }
}

pub(crate) struct FaultInjection {
    kill: Option<Interval>,
    pause: Option<Interval>,
    chance: StdRng,
    lease: Duration,
    /// The paused processes, and the ends of their pauses.
    paused: Vec<(usize, Moment)>,
    /// The killed processes, and the times.
    pub(crate) kills: Vec<(usize, Moment)>,
    pub(crate) pauses: usize,
}

impl FaultInjection {
    pub(crate) fn new(options: &Options) -> Self {
        let now = Moment::now();
        let every = |period: Option<Duration>| period.map(|period| Interval::new(period, now));
        Self {
            kill: every(options.kill_every),
            pause: every(options.pause_every),
            chance: StdRng::seed_from_u64(options.seed),
            lease: options.lease,
            paused: Vec::new(),
            kills: Vec::new(),
            pauses: 0,
        }
    }

    /// Kills, pauses and continues processes that are due. `done` is the number of lists that are done. Returns the
    /// process that was killed, if any.
    pub(crate) fn inject(&mut self, processes: &mut [ChildProcess], done: usize) -> Option<usize> {
        let now = Moment::now();
        self.paused.retain(|(process, until)| {
            let is_over = *until <= now;
            if is_over {
                processes[*process].resume();
            }
            !is_over
        });
        if self
            .pause
            .as_mut()
            .is_some_and(|every| every.is_due(now, done))
            && let Some(chosen) = self.choose(processes, 2)
        {
            processes[chosen].pause();
            // Longer than any of its leases, and long enough for another process to acquire its slots.
            let time = self.lease.mul_f64(self.chance.random_range(1.2..1.8));
            self.paused.push((chosen, now.after(time)));
            self.pauses += 1;
        }
        if self
            .kill
            .as_mut()
            .is_some_and(|every| every.is_due(now, done))
        {
            let chosen = self.choose(processes, 1)?;
            processes[chosen].kill();
            self.kills.push((chosen, Moment::now()));
            return Some(chosen);
        }
        None
    }

    /// Chooses a process if at least `least` are running. Not a paused one, which must continue and find its slots
    /// lost.
    fn choose(&mut self, processes: &[ChildProcess], least: usize) -> Option<usize> {
        let is_paused = |index: usize| self.paused.iter().any(|(process, _)| *process == index);
        let at_work: Vec<usize> = (0..processes.len())
            .filter(|process| processes[*process].is_at_work() && !is_paused(*process))
            .collect();
        if at_work.len() < least {
            return None;
        }
        at_work.choose(&mut self.chance).copied()
    }
}
