//! Histories in files: a line of JSON for each record, one file for each process.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Fault, Record};

/// How the files of processes end.
const OF_PROCESSES: &str = "history";

/// Writes lines, each by one call of the system's, so that a process that is killed loses none of those before.
#[derive(Debug)]
pub struct Writer(Mutex<File>);

impl Writer {
    /// The file of a process; there is none yet.
    pub fn for_process(directory: &Path, process: u32) -> Result<Self> {
        let path = directory.join(format!("{process}.{OF_PROCESSES}"));
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        Ok(Self(Mutex::new(
            file.with_context(|| path.display().to_string())?,
        )))
    }

    /// Writes a line.
    pub fn write(&self, line: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        let mut file = match self.0.lock() {
            Ok(file) => file,
            // A thread that panicked has not written a part of a line.
            Err(poisoned) => poisoned.into_inner(),
        };
        Ok(file.write_all(&line)?)
    }
}

/// The histories of a run.
#[derive(Clone, Debug, Default)]
pub struct Histories {
    /// One of each process, in no order.
    pub processes: Vec<Vec<Record>>,
    /// What the nemesis did.
    pub faults: Vec<Fault>,
}

/// All histories of processes in a directory.
pub fn read_all(directory: &Path) -> Result<Vec<Vec<Record>>> {
    let mut histories = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == OF_PROCESSES) {
            let text = fs::read_to_string(&path)?;
            histories.push(lines(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(histories)
}

/// The lines. What comes after the last end of a line is not one: its process was killed while it wrote.
fn lines<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut records = Vec::new();
    for (number, line) in whole.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(error) => bail!("line {}: {error}", number + 1),
        }
    }
    Ok(records)
}
