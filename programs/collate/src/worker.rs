//! A worker: on a timer it requests a slot, and with a slot it takes a list and collates it.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel_locks::prelude::*;
use program_support::child_process::report;
use program_support::stop;
use rand::RngExt;

use crate::directory::Directory;
use crate::job::Job;
use crate::leased_slot::{LeasedSlot, Safety};
use crate::report::{Gate, Noticed, Report};
use crate::stop_reason::StopReason;
use crate::store::{HourFile, List, Part, Store, state};
use crate::{merging, sorting};

/// The bounds of the pause between two requests for a slot, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 20..60;

/// The number of lists among which a worker chooses one.
const CHOICE: i64 = 32;

/// The result of a list, before it is committed.
pub(crate) enum Made {
    Parts(Vec<Part>),
    Hour {
        file: HourFile,
        /// The name of the file that it replaces.
        old: Option<String>,
        /// The names of the parts that it now contains.
        parts: Vec<String>,
    },
}

/// Works until the node ends.
pub(crate) fn run<C: Store>(job: &Job, worker: usize) -> Result<()> {
    let mut conn = C::establish(&job.database_url).context("can't connect to the database")?;
    conn.configure_session()?;
    let directory = Directory::of(&job.directory);
    let semaphore = job.collate();
    let lease = LeaseOptions::new(job.lease).holder(format!("node {}, worker {worker}", job.node));
    let safety = Safety {
        fenced: job.fenced,
        renew_checked: job.fenced && !job.careless,
    };
    while !stop::is_requested() {
        let asked = (lease.clone(), job.lease);
        let slot = LeasedSlot::acquire(&mut conn, Gate::Collate, &semaphore, asked, safety)?;
        if let Some(mut slot) = slot {
            if let Some(list) = next_list(&mut slot)? {
                collate(&mut slot, job, &directory, &list)?;
            }
            slot.release()?;
        }
        // Also after work, so that a waiting worker gets the slot.
        pause();
    }
    Ok(())
}

/// Sleeps for a random time, so that workers do not all request at the same time.
fn pause() {
    thread::sleep(Duration::from_millis(rand::rng().random_range(PAUSE_MS)));
}

/// Takes a list. Each slot starts its search at another list, so that workers rarely compete for one list.
fn next_list<C: Store>(slot: &mut LeasedSlot<'_, C>) -> Result<Option<List>> {
    let fence = slot.fence();
    let mut lists = slot.conn.queued(fence, CHOICE)?;
    if !lists.is_empty() {
        let first = slot.slot_number() % lists.len();
        lists.rotate_left(first);
    }
    for list in lists {
        if slot.statement(|conn| conn.take(list.id, fence))? == 1 {
            return Ok(Some(list));
        }
    }
    Ok(None)
}

fn collate<C: Store>(
    slot: &mut LeasedSlot<'_, C>,
    job: &Job,
    directory: &Directory,
    list: &List,
) -> Result<()> {
    let made = match &list.hour {
        None => sorting::sort(slot, job, directory, list),
        Some(hour) => merging::merge(slot, job, directory, list, hour),
    };
    match made.and_then(|made| commit(slot, directory, list, made)) {
        Ok(()) => Ok(()),
        // The list will be queued again, because the slot is no longer held.
        Err(StopReason::Stale(noticed)) => {
            report(&Report::Stale(noticed));
            Ok(())
        }
        Err(StopReason::Stopped) => {
            let fence = slot.fence();
            slot.statement(|conn| conn.put_back(list.id, fence))?;
            Ok(())
        }
        // The files of a list that another worker has finished are deleted, so this worker may have lost the list.
        // Without fences nothing checks that, and the list is retried.
        Err(StopReason::Failed(error)) => {
            if !slot.is_fenced() {
                return Ok(());
            }
            if is_ours(slot, list)? {
                return Err(error);
            }
            report(&Report::Stale(Noticed::Renewing));
            Ok(())
        }
    }
}

fn is_ours<C: Store>(slot: &mut LeasedSlot<'_, C>, list: &List) -> Result<bool> {
    let fence = slot.fence();
    let lists = slot.conn.lists()?;
    let is_taken = lists
        .iter()
        .any(|now| now.id == list.id && now.fence == fence && now.state == state::TAKEN);
    Ok(is_taken && slot.is_held()?)
}

/// Commits the result if this worker still holds the slot and the list, and then deletes the files that it replaces.
fn commit<C: Store>(
    slot: &mut LeasedSlot<'_, C>,
    directory: &Directory,
    list: &List,
    made: Made,
) -> Result<(), StopReason> {
    let (fence, fenced) = (slot.fence(), slot.is_fenced());
    slot.transaction(|conn| {
        let changed = if fenced {
            conn.set_done(list.id, fence)?
        } else {
            conn.set_done_unfenced(list.id)?
        };
        if changed == 0 {
            return Err(StopReason::Stale(Noticed::Committing));
        }
        match &made {
            Made::Parts(parts) => {
                conn.insert_parts(parts)?;
            }
            Made::Hour { file, old, .. } => {
                let changed = match old {
                    None => conn.insert_hour(file)?,
                    Some(_) if fenced => conn.replace_hour(file)?,
                    Some(_) => conn.replace_hour_unfenced(file)?,
                };
                if changed == 0 {
                    return Err(StopReason::Stale(Noticed::Committing));
                }
            }
        }
        Ok(())
    })?;
    if let Made::Hour { old, mut parts, .. } = made {
        parts.extend(old);
        directory.delete(&parts);
    }
    Ok(())
}
