//! Checks that every line is in the file of its hour, once and in the order of time.
//!
//! Generates the lines again, and reads the files of the hours. Does not use anything else that the program
//! has written.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use crate::files::{Directory, hour, id, log_file};

#[derive(Default)]
pub(crate) struct CheckResult {
    /// Lines in the files.
    pub(crate) found: usize,
    pub(crate) missing: usize,
    /// Lines that are there more than once, without the first.
    pub(crate) repeated: usize,
    /// Lines that are earlier than the one before.
    pub(crate) disordered: usize,
    /// Lines in the file of another hour, or that are in no log file.
    pub(crate) foreign: usize,
}

/// Reads the files of the hours, which must have the lines of this number of log files.
pub(crate) fn check(
    files: usize,
    directory: &Directory,
    hours: &[String],
) -> io::Result<CheckResult> {
    let lines = (0..files).flat_map(log_file);
    let expected: Vec<u64> = lines.map(|line| digest(&line)).collect();
    let mut seen = vec![false; expected.len()];
    let mut result = CheckResult::default();
    for of in hours {
        let text = fs::read_to_string(directory.hours.join(of))?;
        let mut last = None;
        for line in text.lines() {
            result.found += 1;
            let time = line.split(' ').next();
            result.disordered += usize::from(time < last);
            last = time;
            let known = id(line).filter(|id| expected.get(*id) == Some(&digest(line)));
            match known {
                Some(id) if hour(line) == Some(of.as_str()) => {
                    result.repeated += usize::from(seen[id]);
                    seen[id] = true;
                }
                _ => result.foreign += 1,
            }
        }
    }
    result.missing = seen.iter().filter(|seen| !**seen).count();
    Ok(result)
}

fn digest(line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The lines of each hour.
    type Hours = BTreeMap<String, Vec<String>>;

    /// The verdict on correct files after a change.
    fn verdict(change: impl FnOnce(&mut Hours)) -> CheckResult {
        let mut hours = Hours::new();
        for line in (0..5).flat_map(log_file) {
            let hour = hour(&line).expect("an hour").to_owned();
            hours.entry(hour).or_default().push(line);
        }
        for lines in hours.values_mut() {
            lines.sort();
        }
        change(&mut hours);
        let root = tempfile::tempdir().expect("a directory");
        let directory = Directory::of(root.path());
        directory.create().expect("a directory");
        for (hour, lines) in &hours {
            fs::write(directory.hours.join(hour), lines.join("\n")).expect("a file");
        }
        let hours: Vec<_> = hours.into_keys().collect();
        check(5, &directory, &hours).expect("the files")
    }

    fn first(hours: &mut Hours) -> &mut Vec<String> {
        hours.values_mut().next().expect("an hour")
    }

    #[test]
    fn finds_lines_that_are_missing_repeated_in_disorder_or_elsewhere() {
        let counts = |change: fn(&mut Hours)| {
            let found = verdict(change);
            [
                found.missing,
                found.repeated,
                found.disordered,
                found.foreign,
            ]
        };
        assert_eq!(counts(|_| ()), [0, 0, 0, 0]);
        assert_eq!(counts(|hours| drop(first(hours).pop())), [1, 0, 0, 0]);
        assert_eq!(counts(|hours| first(hours).swap(3, 4)), [0, 0, 1, 0]);
        assert_eq!(counts(|hours| first(hours)[0].push('!')), [1, 0, 0, 1]);
        let doubled = counts(|hours| {
            let line = first(hours)[0].clone();
            first(hours).insert(0, line);
        });
        assert_eq!(doubled, [0, 1, 0, 0]);
        let moved = counts(|hours| {
            let line = first(hours).remove(0);
            hours.values_mut().last().expect("an hour").insert(0, line);
        });
        assert_eq!(moved, [1, 0, 0, 1]);
    }
}
