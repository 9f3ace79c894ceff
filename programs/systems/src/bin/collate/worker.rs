//! A worker: on a timer it requests a slot, and with a slot it takes a list and collates it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::processes::{is_stop_requested, report};
use rand::RngExt;

use crate::files::{Directory, hour};
use crate::job::{Gate, Job, Noticed, Report, StopReason};
use crate::leased_slot::{LeasedSlot, Safety};
use crate::store::{self, HourFile, List, Part, state};

/// The bounds of the pause between two requests for a slot, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 20..60;

/// The number of lists among which a worker chooses one.
const CHOICE: i64 = 32;

/// The result of a list, before it is committed.
enum Made {
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
pub(crate) fn run(job: &Job, worker: usize) -> Result<()> {
    let mut conn = AnyConnection::open(&job.database)?;
    let directory = Directory::of(&job.directory);
    let semaphore = job.collate();
    let lease = LeaseOptions::new(job.lease).holder(format!("node {}, worker {worker}", job.node));
    let safety = Safety {
        fenced: job.fenced,
        renew_checked: job.fenced && !job.careless,
    };
    while !is_stop_requested() {
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
fn next_list(slot: &mut LeasedSlot<'_>) -> Result<Option<List>> {
    let fence = slot.fence();
    let mut lists = store::queued(slot.conn, fence, CHOICE)?;
    if !lists.is_empty() {
        let first = slot.slot_number() % lists.len();
        lists.rotate_left(first);
    }
    for list in lists {
        if slot.statement(|conn| store::take(conn, list.id, fence))? == 1 {
            return Ok(Some(list));
        }
    }
    Ok(None)
}

fn collate(slot: &mut LeasedSlot<'_>, job: &Job, directory: &Directory, list: &List) -> Result<()> {
    let made = match &list.hour {
        None => sort(slot, job, directory, list),
        Some(hour) => merge(slot, job, directory, list, hour),
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
            slot.statement(|conn| store::finish(conn, list.id, fence, state::QUEUED))?;
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

fn is_ours(slot: &mut LeasedSlot<'_>, list: &List) -> Result<bool> {
    let fence = slot.fence();
    let lists = store::lists(slot.conn)?;
    let is_taken = lists
        .iter()
        .any(|now| now.id == list.id && now.fence == fence && now.state == state::TAKEN);
    Ok(is_taken && slot.is_held()?)
}

/// Commits the result if this worker still holds the slot and the list, and then deletes the files that it replaces.
fn commit(
    slot: &mut LeasedSlot<'_>,
    directory: &Directory,
    list: &List,
    made: Made,
) -> Result<(), StopReason> {
    let (fence, fenced) = (slot.fence(), slot.is_fenced());
    slot.transaction(|conn| {
        let changed = if fenced {
            store::finish(conn, list.id, fence, state::DONE)?
        } else {
            store::set_done_unfenced(conn, list.id)?
        };
        if changed == 0 {
            return Err(StopReason::Stale(Noticed::Committing));
        }
        match &made {
            Made::Parts(parts) => {
                store::insert_parts(conn, parts)?;
            }
            Made::Hour { file, old, .. } => {
                let changed = match old {
                    None => store::insert_hour(conn, file)?,
                    Some(_) if fenced => store::replace_hour(conn, file, file.fence)?,
                    Some(_) => store::replace_hour(conn, file, i64::MAX)?,
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

/// Sorts the lines of a list of log files into one part per hour.
fn sort(
    slot: &mut LeasedSlot<'_>,
    job: &Job,
    directory: &Directory,
    list: &List,
) -> Result<Made, StopReason> {
    let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in store::files_of(slot.conn, list.id)? {
        thread::sleep(job.read_time);
        for line in fs::read_to_string(directory.log(&name))?.lines() {
            let hour = hour(line).ok_or_else(|| unreadable(&name))?;
            match hours.get_mut(hour) {
                Some(lines) => lines.push(line.to_owned()),
                None => drop(hours.insert(hour.to_owned(), vec![line.to_owned()])),
            }
        }
        slot.renew_if_due()?;
    }
    let mut parts = Vec::new();
    for (hour, mut lines) in hours {
        // Lines begin with their time.
        lines.sort_unstable();
        let name = format!("{hour}.{}.part", slot.fence());
        let mut out = directory.make(&name)?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
        // The file must be on the disk before a row names it.
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_data()?;
        parts.push((hour, name));
        slot.renew_if_due()?;
    }
    Ok(Made::Parts(parts))
}

fn unreadable(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name}: no timestamp"))
}

/// The number of lines between two reports of progress, which may renew the slot.
const STRIDE: i64 = 500;

/// Merges the parts of an hour, and the hour's file so far, into a new file of the hour.
fn merge(
    slot: &mut LeasedSlot<'_>,
    job: &Job,
    directory: &Directory,
    list: &List,
    hour: &str,
) -> Result<Made, StopReason> {
    let parts = store::files_of(slot.conn, list.id)?;
    let old = store::hour(slot.conn, hour)?.map(|file| file.name);
    let mut sources = Sources::default();
    for name in parts.iter().chain(&old) {
        thread::sleep(job.read_time);
        sources.add(directory.made(name))?;
        slot.renew_if_due()?;
    }
    let name = format!("{hour}.{}.log", slot.fence());
    let mut out = directory.make(&name)?;
    let mut lines = 0;
    while let Some(line) = sources.next()? {
        writeln!(out, "{line}")?;
        lines += 1;
        if lines % STRIDE == 0 {
            slot.renew_if_due()?;
        }
    }
    // The file must be on the disk before a row names it.
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_data()?;
    slot.renew_if_due()?;
    Ok(Made::Hour {
        file: HourFile {
            hour: hour.to_owned(),
            name,
            lines,
            fence: slot.fence(),
        },
        old,
        parts,
    })
}

/// Sorted files that are read at the same time: the next line of each, the smallest on top.
#[derive(Default)]
struct Sources {
    files: Vec<Lines<BufReader<File>>>,
    heads: BinaryHeap<Reverse<(String, usize)>>,
}

impl Sources {
    fn add(&mut self, path: PathBuf) -> io::Result<()> {
        self.files.push(BufReader::new(File::open(path)?).lines());
        self.advance(self.files.len() - 1)
    }

    fn next(&mut self) -> io::Result<Option<String>> {
        let Some(Reverse((line, file))) = self.heads.pop() else {
            return Ok(None);
        };
        self.advance(file)?;
        Ok(Some(line))
    }

    fn advance(&mut self, file: usize) -> io::Result<()> {
        if let Some(line) = self.files[file].next() {
            self.heads.push(Reverse((line?, file)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_of_several_files_come_in_order_and_none_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut sources = Sources::default();
        for (name, text) in [("a", "1\n4\n4\n"), ("b", ""), ("c", "2\n3\n5")] {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a file");
            sources.add(path).expect("a source");
        }
        let lines: Vec<_> = std::iter::from_fn(|| sources.next().expect("a line")).collect();
        assert_eq!(lines, ["1", "2", "3", "4", "4", "5"]);
    }
}
