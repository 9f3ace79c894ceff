//! Merges the parts of an hour, and the hour's file so far, into a new file of the hour.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::thread;

use crate::directory::Directory;
use crate::job::Job;
use crate::leased_slot::LeasedSlot;
use crate::stop_reason::StopReason;
use crate::store::{HourFile, List, Store};
use crate::worker::Made;

/// The number of lines between two reports of progress, which may renew the slot.
const STRIDE: i64 = 500;

pub(crate) fn merge<C: Store>(
    slot: &mut LeasedSlot<'_, C>,
    job: &Job,
    directory: &Directory,
    list: &List,
    hour: &str,
) -> Result<Made, StopReason> {
    let parts = slot.conn.files_of(list.id)?;
    let old = slot.conn.hour(hour)?.map(|file| file.name);
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
