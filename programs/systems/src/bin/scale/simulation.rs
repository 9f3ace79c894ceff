//! The processes and the server as events in the order of time. Times are microseconds from the start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::{Counts, Options};

type Time = u64;

const MS: Time = 1000;
const SECOND: Time = 1000 * MS;

/// How long a waiter attempts to acquire without a look at the holders.
const EAGER: Time = SECOND;

/// The first and the longest pause after a refused attempt.
const ATTEMPT_PAUSES: (Time, Time) = (20 * MS, 100 * MS);

/// The shortest pause after a look, and the part of the time without a change that a pause takes.
const LOOK_PAUSE: Time = 100 * MS;
const PAUSE_DIVISOR: Time = 10;

/// The statements of a look on PostgreSQL: BEGIN with a limit for the wait for a table, the query, COMMIT. An attempt is one.
const STATEMENTS_PER_LOOK: u32 = 3;

/// The statements of a renewal: the pool's check of its connection, and the UPDATE.
const STATEMENTS_PER_RENEWAL: u32 = 2;

/// A `SlotRenewer` renews when this part of the lease is over.
const RENEWAL_DIVISOR: Time = 3;

/// How long the server works on a statement, and on how many at a time.
const STATEMENT: Time = 150;
const CORES: usize = 2;

/// How many attempts follow a look that has shown a free slot.
const ATTEMPTS_PER_LOOK: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The process sends an attempt or a look.
    Sends(usize),
    /// The server has answered it.
    Answers(usize),
    /// The holder releases its slot, or dies.
    Ends(usize),
    /// The server has released it.
    Frees(usize),
}

#[derive(Clone, Debug, Default)]
struct Process {
    waits_since: Time,
    refusals: u32,
    attempts: u32,
    attempts_now: bool,
    statements_left: u32,
    /// The number of grants at its last look, and when that look had changed.
    seen: u64,
    unchanged_since: Time,
}

#[derive(Default)]
struct Slot {
    is_held: bool,
    lease_ends: Time,
    /// When its holder sent the release.
    released: Time,
}

struct Simulation<'a> {
    options: &'a Options,
    lease: Time,
    random: StdRng,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    processes: Vec<Process>,
    slot: Slot,
    grants: u64,
    /// When each core of the server is free.
    cores: BinaryHeap<Reverse<Time>>,
    counts: Counts,
}

pub(crate) fn run(options: &Options) -> Counts {
    let mut simulation = Simulation {
        lease: options.dying_after_s.unwrap_or(3600) * SECOND,
        random: StdRng::seed_from_u64(1),
        events: BinaryHeap::new(),
        processes: vec![Process::default(); options.processes.get()],
        slot: Slot::default(),
        grants: 0,
        cores: [Reverse(0); CORES].into(),
        counts: Counts::default(),
        options,
    };
    for process in 0..options.processes.get() {
        let start = simulation.random.random_range(0..SECOND);
        match options.renewing_s {
            Some(lease) => {
                simulation.at(
                    start + lease * SECOND / RENEWAL_DIVISOR,
                    Event::Sends(process),
                );
            }
            None => simulation.wait_from(process, start),
        }
    }
    while let Some(Reverse((now, event))) = simulation.events.pop()
        && now < options.seconds * SECOND
    {
        simulation.happen(now, event);
    }
    simulation.counts
}

impl Simulation<'_> {
    fn at(&mut self, time: Time, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    fn wait_from(&mut self, process: usize, time: Time) {
        self.processes[process] = Process {
            waits_since: time,
            attempts: 1,
            ..Process::default()
        };
        self.at(time, Event::Sends(process));
    }

    /// Between half of the pause and all of it.
    fn jittered(&mut self, pause: Time) -> Time {
        pause / 2 + self.random.random_range(0..=pause / 2)
    }

    /// Returns when the server has done the statement.
    fn serve(&mut self, now: Time) -> Time {
        self.counts.statements += 1;
        let Reverse(free) = self.cores.pop().expect("at least one core");
        let done = now.max(free) + STATEMENT;
        self.cores.push(Reverse(done));
        done
    }

    fn happen(&mut self, now: Time, event: Event) {
        match event {
            Event::Sends(index) if self.options.renewing_s.is_some() => {
                self.processes[index].statements_left = STATEMENTS_PER_RENEWAL;
                let answered = self.serve(now);
                self.at(answered, Event::Answers(index));
            }
            Event::Sends(index) => {
                let is_last = self.time_left(now, index) == 0;
                let process = &mut self.processes[index];
                let is_eager = !self.options.standby && now - process.waits_since < EAGER;
                process.attempts_now = is_eager || process.attempts > 0 || is_last;
                process.attempts = process.attempts.saturating_sub(1);
                process.statements_left = if process.attempts_now {
                    1
                } else {
                    STATEMENTS_PER_LOOK
                };
                let answered = self.serve(now);
                self.at(answered, Event::Answers(index));
            }
            Event::Answers(index) => {
                let process = &mut self.processes[index];
                process.statements_left -= 1;
                if process.statements_left > 0 {
                    let answered = self.serve(now);
                    self.at(answered, Event::Answers(index));
                    return;
                }
                if let Some(lease) = self.options.renewing_s {
                    self.at(now + lease * SECOND / RENEWAL_DIVISOR, Event::Sends(index));
                } else if self.slot.is_held && self.slot.lease_ends > now {
                    if self.time_left(now, index) == 0 {
                        self.wait_from(index, now);
                        return;
                    }
                    if self.processes[index].refusals == 0 {
                        // The waiter asks which database it is, and joins the queue of its process.
                        self.serve(now);
                    }
                    let pause = self.pause(now, index);
                    let pause = pause.min(self.time_left(now, index));
                    self.at(now + pause, Event::Sends(index));
                } else if self.processes[index].attempts_now {
                    self.grant(now, index);
                } else {
                    self.processes[index].attempts = ATTEMPTS_PER_LOOK;
                    self.at(now, Event::Sends(index));
                }
            }
            Event::Ends(index) => {
                if self.options.dying_after_s.is_some() {
                    // Another process starts in its place.
                    self.wait_from(index, now);
                    return;
                }
                self.slot.released = now;
                let freed = self.serve(now);
                self.at(freed, Event::Frees(index));
            }
            Event::Frees(index) => {
                self.slot.is_held = false;
                let rested = now + self.options.hold_ms * MS;
                self.wait_from(index, rested);
            }
        }
    }

    /// How long the process still waits. At its limit it makes a last attempt.
    fn time_left(&self, now: Time, index: usize) -> Time {
        let limit = self.options.at_most_s.map(|seconds| seconds * SECOND);
        let end = limit.map_or(Time::MAX, |limit| self.processes[index].waits_since + limit);
        end.saturating_sub(now)
    }

    fn grant(&mut self, now: Time, index: usize) {
        let released = if self.slot.is_held {
            self.slot.lease_ends
        } else {
            self.slot.released
        };
        self.slot = Slot {
            is_held: true,
            lease_ends: now + self.lease,
            released,
        };
        self.grants += 1;
        // The first grant follows no holder.
        if released > 0 {
            let handover = Duration::from_micros(now.saturating_sub(released));
            self.counts.handovers.push(handover);
        }
        let hold = self.options.hold_ms * MS;
        self.at(now + hold, Event::Ends(index));
    }

    /// The pause after a refused attempt, or after a look that has shown no free slot.
    fn pause(&mut self, now: Time, index: usize) -> Time {
        let grants = self.grants;
        let process = &mut self.processes[index];
        if process.attempts_now {
            let (first, longest) = ATTEMPT_PAUSES;
            let pause = (first << process.refusals.min(10)).min(longest);
            process.refusals += 1;
            return self.jittered(pause);
        }
        if process.seen != grants {
            process.seen = grants;
            process.unchanged_since = now;
        }
        let unchanged = now - process.unchanged_since;
        let interval = self.options.poll_interval_ms * MS;
        let pause = self.jittered(if self.options.standby {
            interval
        } else {
            (unchanged / PAUSE_DIVISOR).max(LOOK_PAUSE).min(interval)
        });
        pause.min(self.slot.lease_ends.saturating_sub(now) + MS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// A figure of a run with these arguments.
    fn figure(name: &str, arguments: &str) -> f64 {
        let all = ["scale"].into_iter().chain(arguments.split(' '));
        let options = Options::parse_from(all);
        let outcome = crate::outcome(&options, run(&options));
        outcome[name].as_f64().expect("a number")
    }

    #[test]
    fn statements_grow_with_the_processes_and_fall_with_the_poll_interval() {
        let long = "--standby --hold-ms 60000 --seconds 50 --processes";
        let per_second = |more: &str| figure("statements_per_second", &format!("{long} {more}"));
        let (ten, hundred) = (per_second("10"), per_second("100"));
        assert!((9.0..11.0).contains(&(hundred / ten)), "{hundred} to {ten}");
        let slow = per_second("100 --poll-interval-ms 10000");
        assert!(
            (8.0..12.0).contains(&(hundred / slow)),
            "{slow} of {hundred}"
        );
    }

    #[test]
    fn each_process_renews_three_times_in_its_lease() {
        let renewals = "--renewing-s 30 --seconds 600 --processes";
        for (processes, expected) in [(100, 20.0), (10_000, 2000.0)] {
            let per_second = figure("statements_per_second", &format!("{renewals} {processes}"));
            let ratio = per_second / expected;
            assert!((0.9..1.1).contains(&ratio), "{processes}: {per_second}");
        }
    }

    #[test]
    fn waits_that_end_soon_send_more_statements() {
        let long = "--hold-ms 60000 --seconds 50 --processes 100";
        let per_second = |more: &str| figure("statements_per_second", &format!("{long}{more}"));
        let (limited, unlimited) = (per_second(" --at-most-s 2"), per_second(""));
        assert!(limited > 2.0 * unlimited, "{limited} and {unlimited}");
    }

    #[test]
    fn more_waiters_notice_a_release_earlier() {
        let median = |processes| figure("handover_ms_median", &format!("--processes {processes}"));
        let (few, many) = (median(3), median(100));
        assert!(many * 2.0 < few, "{many} and {few}");
    }
}
