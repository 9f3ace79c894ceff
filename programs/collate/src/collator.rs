//! A worker: on a timer it asks for a slot, and with a slot for a list, which it works on.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel_locks::prelude::*;
use rand::RngExt;

use crate::directory::Directory;
use crate::halt::Halt;
use crate::holding::{Holding, Rules};
use crate::job::Job;
use crate::report::{Gate, Noticed, Report};
use crate::store::{HourFile, List, Part, Store, state};
use crate::{merging, node, sorting};

/// The time between two questions for a slot, at least and at most.
const PAUSE_MS: std::ops::Range<u64> = 20..60;

/// Lists among which a worker chooses one.
const CHOICE: i64 = 32;

/// What has been made of a list and waits for its row.
pub(crate) enum Made {
    Parts(Vec<Part>),
    Hour {
        file: HourFile,
        /// The name of the one that it replaces.
        old: Option<String>,
        /// The names of the parts that are in it now.
        parts: Vec<String>,
    },
}

/// Works until the node ends.
pub(crate) fn run<C: Store>(job: &Job, worker: usize) -> Result<()> {
    let mut conn = C::establish(&job.database_url).context("can't connect to the database")?;
    conn.set_up()?;
    let directory = Directory::of(&job.directory);
    let semaphore = job.collate();
    let lease = LeaseOptions::new(job.lease).holder(format!("node {}, worker {worker}", job.node));
    let rules = Rules {
        fenced: job.fenced,
        careful: job.fenced && !job.careless,
    };
    while !node::is_stopping() {
        let asked = (lease.clone(), job.lease);
        let holding = Holding::acquire(&mut conn, Gate::Collate, &semaphore, asked, rules)?;
        if let Some(mut holding) = holding {
            if let Some(list) = next_list(&mut holding)? {
                collate(&mut holding, job, &directory, &list)?;
            }
            holding.release()?;
        }
        // After work too: the slot is then another's, who has waited.
        pause();
    }
    Ok(())
}

/// Random, so that workers do not ask in step.
fn pause() {
    thread::sleep(Duration::from_millis(rand::rng().random_range(PAUSE_MS)));
}

/// Takes a list. Each slot has another place to begin at, so that workers seldom want the same list.
fn next_list<C: Store>(holding: &mut Holding<'_, C>) -> Result<Option<List>> {
    let fence = holding.fence();
    let mut lists = holding.conn.queued(fence, CHOICE)?;
    if !lists.is_empty() {
        let first = holding.slot_number() % lists.len();
        lists.rotate_left(first);
    }
    for list in lists {
        if holding.statement(|conn| conn.take(list.id, fence))? == 1 {
            return Ok(Some(list));
        }
    }
    Ok(None)
}

fn collate<C: Store>(
    holding: &mut Holding<'_, C>,
    job: &Job,
    directory: &Directory,
    list: &List,
) -> Result<()> {
    let made = match &list.hour {
        None => sorting::sort(holding, job, directory, list),
        Some(hour) => merging::merge(holding, job, directory, list, hour),
    };
    match made.and_then(|made| commit(holding, directory, list, made)) {
        Ok(()) => Ok(()),
        // The list is queued again when the slot is not held any more.
        Err(Halt::Stale(noticed)) => {
            node::tell(&Report::Stale(noticed));
            Ok(())
        }
        Err(Halt::Stopped) => {
            let fence = holding.fence();
            holding.statement(|conn| conn.put_back(list.id, fence))?;
            Ok(())
        }
        // Others delete the files of a list that is done: to whom it does not belong any more, they are
        // missing. Without fences nobody asks whose list it is, and it is tried again.
        Err(Halt::Failed(error)) => {
            if !holding.is_fenced() {
                return Ok(());
            }
            if is_ours(holding, list)? {
                return Err(error);
            }
            node::tell(&Report::Stale(Noticed::Refreshing));
            Ok(())
        }
    }
}

fn is_ours<C: Store>(holding: &mut Holding<'_, C>, list: &List) -> Result<bool> {
    let fence = holding.fence();
    let lists = holding.conn.lists()?;
    let is_taken = lists
        .iter()
        .any(|now| now.id == list.id && now.fence == fence && now.state == state::TAKEN);
    Ok(is_taken && holding.is_held()?)
}

/// Makes the files count, if slot and list are still ours, and then deletes those that they replace.
fn commit<C: Store>(
    holding: &mut Holding<'_, C>,
    directory: &Directory,
    list: &List,
    made: Made,
) -> Result<(), Halt> {
    let (fence, fenced) = (holding.fence(), holding.is_fenced());
    holding.transaction(|conn| {
        let changed = if fenced {
            conn.set_done(list.id, fence)?
        } else {
            conn.set_done_unfenced(list.id)?
        };
        if changed == 0 {
            return Err(Halt::Stale(Noticed::Committing));
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
                    return Err(Halt::Stale(Noticed::Committing));
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
