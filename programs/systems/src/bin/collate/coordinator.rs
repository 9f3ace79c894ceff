//! A run: generates the log files, starts the nodes, watches the slots, kills and pauses nodes, and checks the result.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions};
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::{self, ChildProcess, send_interrupts};
use program_support::progress::Progress;
use tempfile::TempDir;

use crate::Options;
use crate::check::check;
use crate::faults::FaultInjection;
use crate::files::Directory;
use crate::hold_log::HoldLog;
use crate::job::{COLLATE, Job, Noticed, QUEUE, Report};
use crate::outcome::Outcome;
use crate::store::{self, state};

/// What the coordinator waits for.
type Event = processes::Event<Report>;

/// The interval at which held slots and lists are counted.
const WATCHING: Duration = Duration::from_millis(20);

/// The time that nodes have to finish their statements before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the program with these options.
pub(crate) fn collate(options: &Options, database: &Database) -> Result<Outcome> {
    let (sender, events) = mpsc::channel();
    send_interrupts(sender.clone())?;
    let temporary;
    let root: &Path = if let Some(directory) = &options.directory {
        directory
    } else {
        let prefix = crate::PROGRAM.name;
        temporary = TempDir::with_prefix(prefix).context("can't create a temporary directory")?;
        temporary.path()
    };
    let job = job(options, database, std::path::absolute(root)?);
    Run::new(options, job, sender, &events)?.through()
}

fn job(options: &Options, database: &Database, directory: PathBuf) -> Job {
    Job {
        database: database.clone(),
        directory,
        threads: options.threads.get(),
        permits: options.permits.get(),
        lease: options.lease,
        tick: options.tick,
        read_time: options.read_time,
        list: options.list.get(),
        fenced: !options.unfenced,
        careless: options.careless,
        node: 0,
    }
}

/// The counts of a run.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) errors: usize,
    /// Workers that were stopped during their work, and at its end.
    pub(crate) stale_renewing: usize,
    pub(crate) stale_committing: usize,
    /// The most slots that `held_slots` returned at any time.
    pub(crate) most_sampled: usize,
    pub(crate) lists: usize,
    pub(crate) interrupted: bool,
    /// Whether everything is collated.
    pub(crate) finished: bool,
    /// The time from the start of the nodes to the last list.
    pub(crate) took: Duration,
}

struct Run<'a> {
    options: &'a Options,
    job: Job,
    sender: Sender<Event>,
    events: &'a Receiver<Event>,
    conn: AnyConnection,
    directory: Directory,
    progress: Progress,
    /// All processes that were started, and the numbers of their nodes.
    processes: Vec<ChildProcess>,
    nodes: Vec<usize>,
    hold_log: HoldLog,
    faults: FaultInjection,
    counts: Counts,
    /// When the processes that are still running are killed.
    deadline: Option<Instant>,
}

impl<'a> Run<'a> {
    /// Creates tables and semaphores. Releases the slots of earlier runs, whose holders have ended.
    fn new(
        options: &'a Options,
        job: Job,
        sender: Sender<Event>,
        events: &'a Receiver<Event>,
    ) -> Result<Self> {
        let mut conn = AnyConnection::open(&job.database)?;
        diesel_locks::migrate(&mut conn)?;
        store::create_tables(&mut conn)?;
        conn.register_semaphores([&QUEUE, &job.collate()])?;
        conn.force_release_all(&QUEUE)?;
        conn.force_release_all(COLLATE)?;
        let generator = options.generator();
        Ok(Self {
            directory: Directory::of(&job.directory),
            progress: Progress::new(generator.lines(), "lines by hour", options.output.json),
            options,
            job,
            sender,
            events,
            conn,
            processes: Vec::new(),
            nodes: Vec::new(),
            hold_log: HoldLog::default(),
            faults: FaultInjection::new(options),
            counts: Counts::default(),
            deadline: None,
        })
    }

    fn through(mut self) -> Result<Outcome> {
        let generator = self.options.generator();
        let made = self.directory.fill(&generator, || {
            !matches!(self.events.try_recv(), Ok(Event::Interrupted))
        })?;
        self.counts.interrupted = !made;
        if made {
            self.work()?;
        }
        let hours = store::hours(&mut self.conn)?;
        let mut unreadable = 0;
        let result = check(&generator, &self.directory, &hours, |error| {
            unreadable += 1;
            self.progress.print_error("the check", error);
        });
        self.progress.end();
        self.counts.errors += unreadable;
        let kept: HashSet<&str> = hours.iter().map(|file| file.name.as_str()).collect();
        // Without a result, keep all files for inspection.
        let leftovers = if self.counts.finished {
            self.directory.delete_others(&kept)?
        } else {
            0
        };
        Ok(Outcome::new(
            self.job.database.engine,
            self.options,
            &self.counts,
            &result,
            &self.hold_log,
            &self.faults,
            (hours.len(), leftovers),
        ))
    }

    /// Starts the nodes, and returns when all have ended.
    fn work(&mut self) -> Result<()> {
        let began = Instant::now();
        for node in 1..=self.options.processes.get() {
            self.start(node)?;
        }
        self.faults = FaultInjection::new(self.options);
        self.progress.begin();
        let mut watched = began;
        while self.processes.iter().any(ChildProcess::is_running) {
            if let Ok(event) = self.events.recv_timeout(WATCHING) {
                self.handle(event);
            }
            if self
                .deadline
                .is_some_and(|deadline| Instant::now() > deadline)
            {
                self.processes.iter_mut().for_each(ChildProcess::kill);
            }
            if watched.elapsed() < WATCHING || self.deadline.is_some() {
                continue;
            }
            watched = Instant::now();
            let done = self.watch()?;
            self.counts.took = began.elapsed();
            if self.counts.finished {
                self.stop();
            } else {
                self.inject_faults(done)?;
            }
        }
        // The last reports.
        while let Ok(event) = self.events.try_recv() {
            self.handle(event);
        }
        Ok(())
    }

    fn start(&mut self, node: usize) -> Result<()> {
        let job = Job {
            node,
            ..self.job.clone()
        };
        let index = self.processes.len();
        // On the main thread, because a node dies with the thread that has started it.
        self.processes.push(ChildProcess::start(
            "node",
            &job,
            index,
            self.sender.clone(),
        )?);
        self.nodes.push(node);
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Reported(process, Report::Held(gate, held)) => {
                self.hold_log.held(process, gate, held);
            }
            Event::Reported(_, Report::Left { gate, fence, at }) => {
                self.hold_log.left(gate, fence, at);
            }
            Event::Reported(_, Report::Stale(noticed)) => match noticed {
                Noticed::Renewing => self.counts.stale_renewing += 1,
                Noticed::Committing => self.counts.stale_committing += 1,
            },
            Event::Reported(process, Report::Failed(error)) => {
                let node = self.nodes[process];
                self.error(node, &error);
            }
            Event::Ended(process) => {
                if let Err(error) = self.processes[process].ended() {
                    let node = self.nodes[process];
                    self.error(node, &format!("{error:#}"));
                }
            }
            Event::Interrupted => {
                if self.counts.interrupted {
                    self.processes.iter_mut().for_each(ChildProcess::kill);
                }
                self.counts.interrupted = true;
                self.stop();
            }
        }
    }

    fn error(&mut self, node: usize, text: &str) {
        self.counts.errors += 1;
        self.progress.print_error(&format!("node {node}"), text);
    }

    fn stop(&mut self) {
        self.processes.iter_mut().for_each(ChildProcess::stop);
        self.deadline.get_or_insert(Instant::now() + PATIENCE);
    }

    /// Counts slots and lists. Returns how many lists are done.
    fn watch(&mut self) -> Result<usize> {
        let held = self
            .conn
            .held_slots(&ListOptions::new().name(COLLATE))?
            .len();
        self.counts.most_sampled = self.counts.most_sampled.max(held);
        let lists = store::lists(&mut self.conn)?;
        let hours = store::hours(&mut self.conn)?;
        let done = lists.iter().filter(|list| list.state == state::DONE);
        let sorted: i32 = done
            .clone()
            .filter(|list| list.hour.is_none())
            .map(|list| list.items)
            .sum();
        let merged: i64 = hours.iter().map(|file| file.lines).sum();
        self.progress.set(usize::try_from(merged).unwrap_or(0));
        let done = done.count();
        self.counts.lists = lists.len();
        // When all log files are sorted, no parts are added. Existing parts may have been put on a list since the lists
        // were read.
        self.counts.finished = usize::try_from(sorted) == Ok(self.options.generator().files())
            && done == lists.len()
            && store::unqueued_parts(&mut self.conn)?.is_empty()
            && store::last_list(&mut self.conn)?
                == lists.iter().map(|list| list.id).max().unwrap_or(0);
        Ok(done)
    }

    fn inject_faults(&mut self, done: usize) -> Result<()> {
        let Some(killed) = self.faults.inject(&mut self.processes, done) else {
            return Ok(());
        };
        let node = self.nodes[killed];
        self.start(node)
    }
}
