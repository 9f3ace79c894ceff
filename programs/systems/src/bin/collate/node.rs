//! A node: a process with one thread that queues and several that collate.
//!
//! It ends on Ctrl-C, and when its standard input ends, which the coordinator closes to stop it. If the coordinator is
//! killed, the node is killed too.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions};
use program_support::connection::AnyConnection;
use program_support::processes::{
    die_with_parent, is_stop_requested, read_job, report, request_stop, stop_at_end_of_input,
    stop_on_interrupt,
};
use rand::RngExt;

use crate::Options;
use crate::files::{Directory, hour, log_file};
use crate::job::{COLLATE, FILES, Gate, Job, Noticed, QUEUE, Report};
use crate::leased_slot::{LeasedSlot, SlotRequest, StopReason};
use crate::store::{self, Part, state};

/// The interval at which new files are queued.
const TICK: Duration = Duration::from_millis(50);

/// The most lists that are queued at a time, so that others can collate while the queue grows.
const LISTS: usize = 20;

/// The bounds of the pause between two requests for a slot, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 20..60;

/// Runs the node from its start to its end.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    die_with_parent()?;
    stop_on_interrupt()?;
    let job: Job = read_job()?;
    stop_at_end_of_input();
    let ended = |result: Result<()>| {
        if let Err(error) = &result {
            report(&Report::Failed(format!("{error:#}").trim_end().to_owned()));
            request_stop();
        }
        result.is_ok()
    };
    let (job, ended) = (&job, &ended);
    let all_well = thread::scope(|scope| {
        let mut threads = vec![scope.spawn(|| ended(queue(job, options)))];
        threads.extend(
            (1..=options.threads.get())
                .map(|worker| scope.spawn(move || ended(work(job, options, worker)))),
        );
        let ends: Vec<_> = threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        ends.into_iter().all(|end| end.unwrap_or(false))
    });
    Ok(ExitCode::from(u8::from(!all_well)))
}

/// Requests the only slot on a timer, and queues the lists of new log files.
fn queue(job: &Job, options: &Options) -> Result<()> {
    let mut conn = AnyConnection::open(&job.database)?;
    let lists = i64::try_from(options.files.get().div_ceil(FILES))?;
    // The slot is held until the end of the interval, so that one node queues per interval.
    let lease = LeaseOptions::new(options.lease)
        .hold_at_least(TICK.min(options.lease))
        .holder(format!("node {}", job.node));
    let request = SlotRequest {
        gate: Gate::Queue,
        semaphore: QUEUE,
        lease,
        duration: options.lease,
        // Whatever the options: two processes that queue the same files would only get an error for their names.
        fenced: true,
        renew_checked: true,
    };
    while !is_stop_requested() {
        request.with_slot(&mut conn, |slot| {
            slot.transaction(queue_again)?;
            slot.renew_if_due()?;
            slot.transaction(|conn| {
                let queued = store::count_lists(conn)?;
                for list in (queued..lists).take(LISTS) {
                    store::insert_list(conn, list)?;
                }
                Ok(())
            })
        })?;
        thread::sleep(TICK);
    }
    Ok(())
}

/// Queues the lists of workers that have lost their slots, so that others can take them.
fn queue_again(conn: &mut AnyConnection) -> Result<()> {
    // The lists are read before the slots, because a worker acquires its slot before it takes a list.
    let taken = store::lists(conn, state::TAKEN)?;
    let held = conn.held_slots(&ListOptions::new().name(COLLATE))?;
    let held: HashSet<i64> = held.iter().map(|slot| slot.fence).collect();
    for list in taken.iter().filter(|list| !held.contains(&list.fence)) {
        store::finish(conn, list.id, list.fence, state::QUEUED)?;
    }
    Ok(())
}

/// On a timer requests a slot, and with a slot takes a list and collates it.
fn work(job: &Job, options: &Options, worker: usize) -> Result<()> {
    let mut conn = AnyConnection::open(&job.database)?;
    let directory = Directory::of(&job.directory);
    let holder = format!("node {}, worker {worker}", job.node);
    let request = SlotRequest {
        gate: Gate::Collate,
        semaphore: options.collate(),
        lease: LeaseOptions::new(options.lease).holder(holder),
        duration: options.lease,
        fenced: !options.unfenced,
        renew_checked: !options.unfenced && !options.careless,
    };
    while !is_stop_requested() {
        request.with_slot(&mut conn, |slot| {
            let Some(list) = take_list(slot)? else {
                return Ok(());
            };
            let parts = sort(slot, options, &directory, list)?;
            commit(slot, options, list, &parts)
        })?;
        // Random, so that workers do not all request at the same time. Also after work, so that a waiting worker gets
        // the slot.
        thread::sleep(Duration::from_millis(rand::rng().random_range(PAUSE_MS)));
    }
    Ok(())
}

/// Takes a list. Each slot starts its search at another list, so that workers rarely compete for one list.
fn take_list(slot: &mut LeasedSlot<'_>) -> Result<Option<i64>> {
    let mut lists = store::lists(slot.conn, state::QUEUED)?;
    if !lists.is_empty() {
        let first = slot.slot.number() as usize % lists.len();
        lists.rotate_left(first);
    }
    for list in lists {
        if store::take(slot.conn, list.id, slot.slot.fence())? == 1 {
            return Ok(Some(list.id));
        }
    }
    Ok(None)
}

/// Sorts the lines of a list of log files into one part per hour.
fn sort(
    slot: &mut LeasedSlot<'_>,
    options: &Options,
    directory: &Directory,
    list: i64,
) -> Result<Vec<Part>> {
    let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let first = usize::try_from(list)? * FILES;
    for file in (first..options.files.get()).take(FILES) {
        thread::sleep(options.read_time);
        for line in log_file(file) {
            let hour = hour(&line).context("no timestamp")?.to_owned();
            hours.entry(hour).or_default().push(line);
        }
        slot.renew_if_due()?;
    }
    let mut parts = Vec::new();
    for (hour, mut lines) in hours {
        // Lines begin with their time.
        lines.sort_unstable();
        // No two workers have one fence, so no two write one file.
        let name = format!("{hour}.{}.part", slot.slot.fence());
        let mut out = fs::File::create_new(directory.parts.join(&name))?;
        out.write_all((lines.join("\n") + "\n").as_bytes())?;
        // The file must be on the disk before a row names it.
        out.sync_data()?;
        parts.push(Part { name, hour });
        slot.renew_if_due()?;
    }
    Ok(parts)
}

/// Commits the result if this worker still holds the slot and the list.
fn commit(slot: &mut LeasedSlot<'_>, options: &Options, list: i64, parts: &[Part]) -> Result<()> {
    let fence = slot.slot.fence();
    slot.transaction(|conn| {
        let changed = if options.unfenced {
            store::set_done_unfenced(conn, list)?
        } else {
            store::finish(conn, list, fence, state::DONE)?
        };
        if changed == 0 {
            bail!(StopReason::Stale(Noticed::Committing));
        }
        Ok(store::insert_parts(conn, parts)?)
    })
}
