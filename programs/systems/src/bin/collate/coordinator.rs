//! A run: starts the nodes, watches the slots, kills and pauses nodes, and checks the result.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions};
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::outcome::{
    Errors, INTERRUPTED, Verdict, json, milliseconds, per_second, print, thousandths,
};
use program_support::processes::{ChildProcess, Children, Event, now};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::check::check;
use crate::files::{Directory, LINES};
use crate::hold_log::HoldLog;
use crate::job::{COLLATE, FILES, Gate, Job, Noticed, QUEUE, Report};
use crate::store::{self, state};
use crate::{Options, PROGRAM};

/// The interval at which held slots and lists are counted.
const WATCHING: Duration = Duration::from_millis(20);

/// Runs the program with these options.
pub(crate) fn collate(options: &Options, database: &Database) -> Result<ExitCode> {
    let nodes = Children::new()?;
    let temporary =
        TempDir::with_prefix(PROGRAM.name).context("can't create a temporary directory")?;
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    store::create_tables(&mut conn)?;
    conn.register_semaphores([&QUEUE, &options.collate()])?;
    // The holders of earlier runs have ended.
    conn.force_release_all(&QUEUE)?;
    conn.force_release_all(COLLATE)?;
    let files = options.files.get();
    let directory = Directory::of(temporary.path());
    directory.create()?;

    let mut run = Run {
        job: Job {
            database: database.clone(),
            directory: temporary.path().to_owned(),
            node: 0,
        },
        nodes,
        conn,
        hold_log: HoldLog::default(),
        faults: FaultInjection::new(options),
        counts: Counts::default(),
    };
    for _ in 0..options.processes.get() {
        run.start()?;
    }
    let began = Instant::now();
    let mut watched = began;
    while run.nodes.are_running() {
        if let Some(event) = run.nodes.next(WATCHING) {
            run.handle(event);
        }
        if watched.elapsed() >= WATCHING && !run.nodes.are_stopping() {
            watched = Instant::now();
            run.watch(files)?;
            run.counts.took = began.elapsed();
        }
    }

    let parts = store::parts(&mut run.conn)?;
    let hours = directory.merge(&parts)?;
    let checked = check(files, &directory, &hours)?;
    let (counts, hold_log) = (run.counts, run.hold_log);
    let max_holders = hold_log
        .most_at_once(Gate::Collate)
        .max(counts.most_sampled);
    let max_schedulers = hold_log.most_at_once(Gate::Queue);
    let shared_slots = hold_log.shared_slots(Gate::Collate) + hold_log.shared_slots(Gate::Queue);
    let interrupted = run.nodes.interrupted;
    let outcome = json!({
        "backend": database.engine,
        "files": files,
        // In the log files, and in the files of the hours.
        "lines": files * LINES,
        "found": checked.found,
        "missing": checked.missing,
        "repeated": checked.repeated,
        "disordered": checked.disordered,
        "foreign": checked.foreign,
        "hours": hours.len(),
        "lists": counts.lists,
        "processes": options.processes,
        "threads": options.threads,
        "permits": options.permits,
        // The most holders at the same time, by their reports and by `held_slots`.
        "max_holders": max_holders,
        "max_holders_sampled": counts.most_sampled,
        "max_schedulers": max_schedulers,
        // Slots that two holders held at the same time.
        "shared_slots": shared_slots,
        "grants": hold_log.grants(Gate::Collate),
        "kills": counts.kills,
        "pauses": run.faults.pauses,
        // Workers that were stopped because they had lost their slots, and those of them that were stopped when they
        // committed.
        "stale_stopped": counts.stale_stopped,
        "stale_at_commit": counts.stale_at_commit,
        "lease_ms": milliseconds(options.lease),
        // Files left by killed and stale workers.
        "leftovers": fs::read_dir(&directory.parts)?.count() - parts.len(),
        "errors": counts.errors.0,
        "seconds": thousandths(counts.took.as_secs_f64()),
        "lines_per_second": per_second(checked.found, counts.took),
        "fenced": !options.unfenced,
        "finished": counts.finished,
        "interrupted": interrupted,
    });
    let is_right = checked.missing + checked.repeated + checked.disordered + checked.foreign == 0;
    // Without fences wrong results are expected, and no failure.
    let verdict = if interrupted {
        Verdict(INTERRUPTED, "interrupted")
    } else if !counts.finished {
        Verdict(1, "NOT FINISHED")
    } else if max_holders > options.permits.get() as usize || max_schedulers > 1 || shared_slots > 0
    {
        Verdict(1, "WRONG: more holders than permits")
    } else if is_right && counts.errors.0 == 0 {
        Verdict(0, "right: every line once, in order of time")
    } else if is_right {
        Verdict(u8::from(!options.unfenced), "right, but with errors")
    } else if options.unfenced {
        Verdict(0, "WRONG, as expected without fences")
    } else {
        Verdict(1, "WRONG")
    };
    Ok(print(&outcome, verdict, options.output.json))
}

#[derive(Default)]
struct Counts {
    /// Lists that are done.
    lists: usize,
    /// The most slots that `held_slots` returned at any time.
    most_sampled: usize,
    kills: usize,
    stale_stopped: usize,
    stale_at_commit: usize,
    errors: Errors,
    /// Whether everything is collated.
    finished: bool,
    /// The time from the start of the nodes to the last list.
    took: Duration,
}

struct Run {
    job: Job,
    nodes: Children<Report>,
    conn: AnyConnection,
    hold_log: HoldLog,
    faults: FaultInjection,
    counts: Counts,
}

impl Run {
    /// Starts a node. On the main thread, because a node dies with the thread that has started it.
    fn start(&mut self) -> Result<()> {
        self.job.node += 1;
        self.nodes.start(&self.job)
    }

    fn handle(&mut self, event: Event<Report>) {
        match event {
            Event::Reported(_, Report::Held(gate, held)) => self.hold_log.held(gate, held),
            Event::Reported(_, Report::Left { gate, fence, at }) => {
                self.hold_log.left(gate, fence, at);
            }
            Event::Reported(_, Report::Stale(noticed)) => {
                self.counts.stale_stopped += 1;
                self.counts.stale_at_commit += usize::from(noticed == Noticed::Committing);
            }
            Event::Reported(node, Report::Failed(error)) => self.error(node, &error),
            Event::Ended(node, Err(error)) => self.error(node, &format!("{error:#}")),
            Event::Ended(_, Ok(())) => {}
        }
    }

    fn error(&mut self, node: usize, text: &str) {
        self.counts.errors.add(&format!("node {}", node + 1), text);
    }

    /// Counts slots and lists. Stops the nodes if all files are collated, and otherwise kills and pauses some.
    fn watch(&mut self, files: usize) -> Result<()> {
        let held = self.conn.held_slots(&ListOptions::new().name(COLLATE))?;
        self.counts.most_sampled = self.counts.most_sampled.max(held.len());
        let done = store::lists(&mut self.conn, state::DONE)?.len();
        self.counts.lists = done;
        self.counts.finished = done == files.div_ceil(FILES);
        if self.counts.finished {
            self.nodes.stop();
        } else if self.faults.inject(&mut self.nodes.processes, done) {
            self.counts.kills += 1;
            self.start()?;
        }
        Ok(())
    }
}

/// Something that happens at intervals, but each time only after another list was done. So it happens at most as often
/// as there are lists.
struct Interval {
    /// `None`: never.
    period: Option<Duration>,
    next: Duration,
    done: usize,
}

impl Interval {
    fn new(period: Option<Duration>) -> Self {
        Self {
            period,
            next: now() + period.unwrap_or_default(),
            done: 0,
        }
    }

    fn is_due(&mut self, done: usize) -> bool {
        let Some(period) = self.period else {
            return false;
        };
        let is_due = now() >= self.next && done > self.done;
        if is_due {
            self.next = now() + period;
            self.done = done;
        }
        is_due
    }
}

/// Kills processes, and pauses some for longer than their leases.
struct FaultInjection {
    kill: Interval,
    pause: Interval,
    chance: StdRng,
    lease: Duration,
    /// The paused processes, and the ends of their pauses.
    paused: Vec<(usize, Duration)>,
    pauses: usize,
}

impl FaultInjection {
    fn new(options: &Options) -> Self {
        Self {
            kill: Interval::new(options.kill_every),
            pause: Interval::new(options.pause_every),
            chance: StdRng::seed_from_u64(1),
            lease: options.lease,
            paused: Vec::new(),
            pauses: 0,
        }
    }

    /// Kills, pauses and continues processes that are due. `done` is the number of lists that are done. Returns
    /// whether one was killed.
    fn inject(&mut self, nodes: &mut [ChildProcess], done: usize) -> bool {
        self.paused.retain(|(process, until)| {
            let is_over = *until <= now();
            if is_over {
                nodes[*process].resume();
            }
            !is_over
        });
        if self.pause.is_due(done)
            && let Some(chosen) = self.choose(nodes, 2)
        {
            nodes[chosen].pause();
            // Longer than any of its leases, and long enough for another process to acquire its slots.
            let time = self.lease.mul_f64(self.chance.random_range(1.2..1.8));
            self.paused.push((chosen, now() + time));
            self.pauses += 1;
        }
        if self.kill.is_due(done)
            && let Some(chosen) = self.choose(nodes, 1)
        {
            nodes[chosen].kill();
            return true;
        }
        false
    }

    /// Chooses a process if at least `least` are running. Not a paused one, which must continue and find its slots
    /// lost.
    fn choose(&mut self, nodes: &[ChildProcess], least: usize) -> Option<usize> {
        let is_paused = |index: usize| self.paused.iter().any(|(process, _)| *process == index);
        let at_work: Vec<usize> = (0..nodes.len())
            .filter(|index| nodes[*index].is_at_work() && !is_paused(*index))
            .collect();
        if at_work.len() < least {
            return None;
        }
        at_work.choose(&mut self.chance).copied()
    }
}
