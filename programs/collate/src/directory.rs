//! The directories of the files: one for the logs, another for the results.
//!
//! A file in the second directory counts only if a row in the database names it. Names contain the writer's fence, so
//! no two workers write the same file. Files left by killed and stale workers are never read.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::generator::Generator;

#[derive(Clone, Debug)]
pub(crate) struct Directory {
    logs: PathBuf,
    work: PathBuf,
}

impl Directory {
    pub(crate) fn of(root: &Path) -> Self {
        Self {
            logs: root.join("logs"),
            work: root.join("hours"),
        }
    }

    /// Generates the log files. Calls `report` after each, and stops when it returns `false`.
    pub(crate) fn fill(
        &self,
        generator: &Generator,
        report: impl Fn(usize) -> bool,
    ) -> Result<bool> {
        for directory in [&self.logs, &self.work] {
            fs::create_dir_all(directory)
                .with_context(|| format!("can't create {}", directory.display()))?;
            let is_empty = fs::read_dir(directory)?.next().is_none();
            ensure!(is_empty, "{} has files already", directory.display());
        }
        for file in 0..generator.files() {
            let mut text = String::new();
            for line in generator.file(file) {
                text.push_str(&line);
                text.push('\n');
            }
            let name = format!("server-{:02}-{file:06}.log", file % 20);
            fs::write(self.logs.join(name), text).context("can't write a log file")?;
            if !report(file + 1) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The names of the log files, sorted.
    pub(crate) fn logs(&self) -> io::Result<Vec<String>> {
        let mut names = names(&self.logs)?;
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(name)
    }

    pub(crate) fn made(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// Creates a file; an error if it exists.
    pub(crate) fn make(&self, name: &str) -> io::Result<BufWriter<File>> {
        Ok(BufWriter::new(File::create_new(self.work.join(name))?))
    }

    /// Deletes files that were merged into another. Errors are ignored, because the files are no longer part of the
    /// result.
    pub(crate) fn delete(&self, names: &[String]) {
        for name in names {
            let _ = fs::remove_file(self.work.join(name));
        }
    }

    /// Deletes all files except these; returns how many.
    pub(crate) fn delete_others(&self, kept: &HashSet<&str>) -> io::Result<usize> {
        let mut others = names(&self.work)?;
        others.retain(|name| !kept.contains(name.as_str()));
        self.delete(&others);
        Ok(others.len())
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}
