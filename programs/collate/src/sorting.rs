//! Sorts the lines of a list of log files into one part per hour.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::thread;

use crate::directory::Directory;
use crate::generator::hour;
use crate::job::Job;
use crate::leased_slot::LeasedSlot;
use crate::stop_reason::StopReason;
use crate::store::{List, Store};
use crate::worker::Made;

pub(crate) fn sort<C: Store>(
    slot: &mut LeasedSlot<'_, C>,
    job: &Job,
    directory: &Directory,
    list: &List,
) -> Result<Made, StopReason> {
    let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in slot.conn.files_of(list.id)? {
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
