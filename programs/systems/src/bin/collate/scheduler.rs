//! Queues files: every node requests the only slot on a timer, and the one that acquires it makes lists of the files
//! that are on none yet.

use std::collections::{BTreeMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions};
use program_support::connection::AnyConnection;
use program_support::processes::{is_stop_requested, report};

use crate::files::Directory;
use crate::job::{COLLATE, Gate, Job, QUEUE, Report, StopReason};
use crate::leased_slot::{LeasedSlot, Safety};
use crate::store::{self, List, state};

/// The most lists of log files that are made at a time, so that others can collate while the queue grows.
const AT_ONCE: usize = 20;

/// The number of parts of an hour that are merged although more will come.
const WORTH_MERGING: usize = 8;

/// Always fenced, whatever the options: two processes that queue the same files would only get an error for their
/// names.
const SAFETY: Safety = Safety {
    fenced: true,
    renew_checked: true,
};

/// Queues until the node ends.
pub(crate) fn run(job: &Job) -> Result<()> {
    let mut conn = AnyConnection::open(&job.database)?;
    let directory = Directory::of(&job.directory);
    // The slot is held until the end of the interval, so that one node queues per interval.
    let lease = LeaseOptions::new(job.lease)
        .hold_at_least(job.tick.min(job.lease))
        .holder(format!("node {}", job.node));
    while !is_stop_requested() {
        let asked = (lease.clone(), job.lease);
        let slot = LeasedSlot::acquire(&mut conn, Gate::Queue, &QUEUE, asked, SAFETY)?;
        if let Some(mut slot) = slot {
            match queue(&mut slot, job, &directory) {
                Ok(()) | Err(StopReason::Stopped) => {}
                Err(StopReason::Stale(noticed)) => {
                    report(&Report::Stale(noticed));
                }
                Err(StopReason::Failed(error)) => return Err(error),
            }
            slot.release()?;
        }
        sleep(job.tick);
    }
    Ok(())
}

/// Sleeps; returns early when the node ends.
fn sleep(time: Duration) {
    let end = Instant::now() + time;
    while !is_stop_requested() && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

fn queue(slot: &mut LeasedSlot<'_>, job: &Job, directory: &Directory) -> Result<(), StopReason> {
    slot.transaction(queue_again)?;
    let queued: HashSet<String> = store::queued_logs(slot.conn)?.into_iter().collect();
    let mut logs = directory.logs()?;
    logs.retain(|name| !queued.contains(name));
    let all_queued = logs.len() <= job.list * AT_ONCE;
    for names in logs.chunks(job.list).take(AT_ONCE) {
        slot.renew_if_due()?;
        slot.transaction(|conn| queue_logs(conn, names))?;
    }
    slot.renew_if_due()?;
    slot.transaction(|conn| queue_parts(conn, all_queued))
}

/// Queues the lists of workers that have lost their slots, so that others can take them.
fn queue_again(conn: &mut AnyConnection) -> Result<(), StopReason> {
    // The lists are read before the slots, because a worker acquires its slot before it takes a list.
    let mut taken = store::lists(conn)?;
    taken.retain(|list| list.state == state::TAKEN);
    let held: HashSet<i64> = conn
        .held_slots(&ListOptions::new().name(COLLATE))?
        .iter()
        .map(|slot| slot.fence)
        .collect();
    for list in taken.iter().filter(|list| !held.contains(&list.fence)) {
        store::finish(conn, list.id, list.fence, state::QUEUED)?;
    }
    Ok(())
}

fn queue_logs(conn: &mut AnyConnection, names: &[String]) -> Result<(), StopReason> {
    let list = insert_list(conn, None, names.len(), 0)?;
    store::insert_logs(conn, names, list)?;
    Ok(())
}

/// Makes a list for each hour that has enough parts, or all that it will have. One list per hour at a time, because
/// each replaces the hour's file.
fn queue_parts(conn: &mut AnyConnection, all_queued: bool) -> Result<(), StopReason> {
    let lists = store::lists(conn)?;
    let undone = || lists.iter().filter(|list| list.state != state::DONE);
    let all_sorted = all_queued && undone().all(|list| list.hour.is_some());
    let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (hour, name) in store::unqueued_parts(conn)? {
        hours.entry(hour).or_default().push(name);
    }
    for (hour, names) in hours {
        let is_worth_it = all_sorted || names.len() >= WORTH_MERGING;
        if !is_worth_it || undone().any(|list| list.hour.as_ref() == Some(&hour)) {
            continue;
        }
        let fence = store::hour(conn, &hour)?.map_or(0, |file| file.fence);
        let list = insert_list(conn, Some(hour), names.len(), fence)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        store::queue_parts(conn, &names, list)?;
    }
    Ok(())
}

/// Inserts a list with the next number. Only the holder of the slot does this.
fn insert_list(
    conn: &mut AnyConnection,
    hour: Option<String>,
    items: usize,
    fence: i64,
) -> Result<i64, StopReason> {
    let id = store::last_list(conn)? + 1;
    store::insert_list(
        conn,
        &List {
            id,
            hour,
            items: i32::try_from(items).unwrap_or(i32::MAX),
            state: state::QUEUED,
            fence,
        },
    )?;
    Ok(id)
}
