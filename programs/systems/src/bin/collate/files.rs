//! The files: generated logs in one directory, and results in another.
//!
//! The logs depend on the seed and the numbers alone, so that the check can generate them again. A file in the second
//! directory counts only if a row in the database names it. Names contain the writer's fence, so no two workers write the
//! same file. Files left by killed and stale workers are never read.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

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

    /// Generates the log files. Stops when `go_on` returns `false`.
    pub(crate) fn fill(&self, generator: &Generator, go_on: impl Fn() -> bool) -> Result<bool> {
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
            if !go_on() {
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

const HOUR_US: u64 = 3_600_000_000;

/// The time that a log file covers: about an hour.
const SPAN_US: u64 = HOUR_US;

/// 2026-03-01 00:00 UTC.
const FIRST_HOUR: i64 = 1_772_323_200;

const LEVELS: [&str; 4] = ["INFO", "INFO", "DEBUG", "WARN"];

pub(crate) struct Generator {
    seed: u64,
    files: usize,
    lines: usize,
    hours: u32,
}

impl Generator {
    pub(crate) fn new(seed: u64, files: usize, lines: usize, hours: u32) -> Self {
        Self {
            seed,
            files,
            lines,
            hours,
        }
    }

    pub(crate) fn files(&self) -> usize {
        self.files
    }

    /// The number of lines of all files.
    pub(crate) fn lines(&self) -> usize {
        self.files * self.lines
    }

    /// The lines of a file, as its server wrote them: roughly in the order of time, which starts again after the last
    /// hour. The second word is the number of the line among those of all files, so that every line is unique.
    pub(crate) fn file(&self, file: usize) -> impl Iterator<Item = String> {
        let mut chance = StdRng::seed_from_u64(self.seed ^ (file as u64).rotate_left(32));
        let all = u64::from(self.hours) * HOUR_US;
        let step = (SPAN_US / self.lines as u64).max(1);
        let mut time = chance.random_range(0..all);
        (0..self.lines).map(move |line| {
            time += chance.random_range(0..2 * step);
            // A server has several threads: one that reads the clock later may write earlier.
            let at = (time + all - chance.random_range(0..3 * step) % all) % all;
            let id = file * self.lines + line;
            let level = LEVELS[chance.random_range(0..LEVELS.len())];
            let (user, took) = (chance.random_range(0..10_000), chance.random_range(1..900));
            let stamp = timestamp(at);
            format!(
                "{stamp} {id:09} {level} server-{} GET /orders/{user} {took} ms",
                file % 20
            )
        })
    }
}

/// The number in a line, as [`Generator::file`] writes it.
pub(crate) fn id(line: &str) -> Option<usize> {
    line.split(' ').nth(1)?.parse().ok()
}

/// The hour of a line: `2026-03-01T05`.
pub(crate) fn hour(line: &str) -> Option<&str> {
    line.get(.."2026-03-01T05".len())
}

fn timestamp(micros: u64) -> String {
    let start = DateTime::UNIX_EPOCH + TimeDelta::seconds(FIRST_HOUR);
    let time = start + TimeDelta::microseconds(i64::try_from(micros).unwrap_or(0));
    time.format("%FT%T%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_are_unique_spread_over_the_hours_and_not_in_order() {
        let generator = Generator::new(1, 50, 100, 6);
        let lines: Vec<String> = (0..50).flat_map(|file| generator.file(file)).collect();
        let ids: Vec<_> = lines.iter().filter_map(|line| id(line)).collect();
        assert_eq!(ids, (0..generator.lines()).collect::<Vec<_>>());
        let hours: BTreeSet<_> = lines.iter().filter_map(|line| hour(line)).collect();
        assert_eq!(hours.len(), 6);
        assert_eq!(hours.first(), Some(&"2026-03-01T00"));
        assert!(!generator.file(0).collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn the_same_numbers_give_the_same_lines() {
        let lines = |seed| Generator::new(seed, 5, 10, 3).file(2).collect::<Vec<_>>();
        assert_eq!(lines(7), lines(7));
        assert_ne!(lines(7), lines(8));
    }
}
