//! The log files, which are generated when they are read, and the files of the result.
//!
//! A log file depends on its number alone, so that the check can generate it again. A part counts only if a row in the
//! database names it. Parts left by killed and stale workers are never read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::store::Part;

pub(crate) struct Directory {
    pub(crate) parts: PathBuf,
    /// With one file for each hour.
    pub(crate) hours: PathBuf,
}

impl Directory {
    pub(crate) fn of(root: &Path) -> Self {
        Self {
            parts: root.join("parts"),
            hours: root.join("hours"),
        }
    }

    pub(crate) fn create(&self) -> Result<()> {
        fs::create_dir(&self.parts)?;
        Ok(fs::create_dir(&self.hours)?)
    }

    /// Merges these parts, which are ordered by hour, into one file per hour. Returns the hours.
    pub(crate) fn merge(&self, parts: &[Part]) -> Result<Vec<String>> {
        let mut hours = Vec::new();
        for parts in parts.chunk_by(|one, next| one.hour == next.hour) {
            let mut lines: Vec<String> = Vec::new();
            for part in parts {
                let text = fs::read_to_string(self.parts.join(&part.name))
                    .with_context(|| format!("can't read {}", part.name))?;
                lines.extend(text.lines().map(str::to_owned));
            }
            // Finds the sorted parts, and merges them.
            lines.sort();
            let hour = &parts[0].hour;
            fs::write(self.hours.join(hour), lines.join("\n"))?;
            hours.push(hour.clone());
        }
        Ok(hours)
    }
}

const HOUR_US: u64 = 3_600_000_000;

/// The number of hours of the lines.
const HOURS: u64 = 6;

/// The number of lines of a log file, which covers about an hour.
pub(crate) const LINES: usize = 100;

const LEVELS: [&str; 4] = ["INFO", "INFO", "DEBUG", "WARN"];

/// The lines of a log file, as its server wrote them: roughly in the order of time, which starts again after the last
/// hour. The second word is the number of the line among those of all files, so that every line is unique.
pub(crate) fn log_file(file: usize) -> impl Iterator<Item = String> {
    let mut chance = StdRng::seed_from_u64(file as u64);
    let all = HOURS * HOUR_US;
    let step = HOUR_US / LINES as u64;
    let mut time = chance.random_range(0..all);
    (0..LINES).map(move |line| {
        time += chance.random_range(0..2 * step);
        // A server has several threads: one that reads the clock later may write earlier.
        let at = (time + all - chance.random_range(0..3 * step)) % all;
        let id = file * LINES + line;
        let level = LEVELS[chance.random_range(0..LEVELS.len())];
        let (user, took) = (chance.random_range(0..10_000), chance.random_range(1..900));
        let stamp = timestamp(at);
        format!(
            "{stamp} {id:09} {level} server-{} GET /orders/{user} {took} ms",
            file % 20
        )
    })
}

/// The number in a line, as [`log_file`] writes it.
pub(crate) fn id(line: &str) -> Option<usize> {
    line.split(' ').nth(1)?.parse().ok()
}

/// The hour of a line: `2026-03-01T05`.
pub(crate) fn hour(line: &str) -> Option<&str> {
    line.get(.."2026-03-01T05".len())
}

/// A time on the first of March.
fn timestamp(micros: u64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("2026-03-01T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}
