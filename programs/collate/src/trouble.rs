//! Kills processes, and stops some for longer than their leases last.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::arguments::Options;
use crate::clock::Moment;
use crate::processes::Process;

/// What happens again and again, but not before a list was done since the last time: there are so many
/// lists, so that it does not happen for ever.
struct Every {
    period: Duration,
    next: Moment,
    done: usize,
}

impl Every {
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

pub(crate) struct Trouble {
    kill: Option<Every>,
    pause: Option<Every>,
    chance: StdRng,
    lease: Duration,
    /// Those that are paused, and until when.
    paused: Vec<(usize, Moment)>,
    /// Processes that were killed, and when.
    pub(crate) kills: Vec<(usize, Moment)>,
    pub(crate) pauses: usize,
}

impl Trouble {
    pub(crate) fn new(options: &Options) -> Self {
        let now = Moment::now();
        let every = |period: Option<Duration>| period.map(|period| Every::new(period, now));
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

    /// Does what is due, `done` lists being done; the process that was killed, if one was.
    pub(crate) fn make(&mut self, processes: &mut [Process], done: usize) -> Option<usize> {
        let now = Moment::now();
        self.paused.retain(|(process, until)| {
            let is_over = *until <= now;
            if is_over {
                processes[*process].wake();
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
            // Longer than any lease that it holds, and than another needs to get its slots.
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

    /// One of at least so many that are at work, and none that is paused: it is to wake up and find its slots
    /// gone.
    fn choose(&mut self, processes: &[Process], least: usize) -> Option<usize> {
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
