//! Checks that every line is in the file of its hour, once and in the order of time.
//!
//! Generates the lines again from the seed, and reads the files that are named in the database. Does not use anything
//! else that the workers have written.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader};

use serde::Serialize;

use crate::files::{Directory, Generator, hour, id};
use crate::store::HourFile;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

struct Check {
    expected: Vec<u64>,
    seen: Vec<bool>,
    result: CheckResult,
}

/// Reads the files of all hours. A file that can't be read counts as empty, and its error is reported.
pub(crate) fn check(
    generator: &Generator,
    directory: &Directory,
    hours: &[HourFile],
    mut report: impl FnMut(&str),
) -> CheckResult {
    let lines = (0..generator.files()).flat_map(|file| generator.file(file));
    let expected: Vec<u64> = lines.map(|line| digest(&line)).collect();
    let mut check = Check {
        seen: vec![false; expected.len()],
        expected,
        result: CheckResult::default(),
    };
    for file in hours {
        if let Err(error) = check.file(directory, file) {
            report(&format!("{}: {error}", file.name));
        }
    }
    check.result.missing = check.seen.iter().filter(|seen| !**seen).count();
    check.result
}

impl Check {
    fn file(&mut self, directory: &Directory, file: &HourFile) -> io::Result<()> {
        let mut last = String::new();
        for line in BufReader::new(File::open(directory.made(&file.name))?).lines() {
            let line = line?;
            self.line(&file.hour, &line, &last);
            last = line;
        }
        Ok(())
    }

    fn line(&mut self, of: &str, line: &str, last: &str) {
        let result = &mut self.result;
        result.found += 1;
        result.disordered += usize::from(time(line) < time(last));
        let known = id(line).filter(|id| self.expected.get(*id) == Some(&digest(line)));
        match known {
            Some(id) if hour(line) == Some(of) => {
                result.repeated += usize::from(self.seen[id]);
                self.seen[id] = true;
            }
            _ => result.foreign += 1,
        }
    }
}

fn time(line: &str) -> Option<&str> {
    line.split(' ').next()
}

fn digest(line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    /// The verdict on correct files after a change.
    fn verdict(change: impl FnOnce(&mut BTreeMap<String, Vec<String>>)) -> CheckResult {
        let generator = Generator::new(1, 20, 10, 3);
        let mut hours: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in (0..20).flat_map(|file| generator.file(file)) {
            let hour = hour(&line).expect("an hour").to_owned();
            hours.entry(hour).or_default().push(line);
        }
        for lines in hours.values_mut() {
            lines.sort();
        }
        change(&mut hours);
        let root = tempfile::tempdir().expect("a directory");
        let directory = Directory::of(root.path());
        fs::create_dir(root.path().join("hours")).expect("a directory");
        let mut files = Vec::new();
        for (hour, lines) in hours {
            fs::write(directory.made(&hour), lines.join("\n")).expect("a file");
            files.push(HourFile {
                name: hour.clone(),
                hour,
                lines: 0,
                fence: 0,
            });
        }
        check(&generator, &directory, &files, |_| ())
    }

    fn first(hours: &mut BTreeMap<String, Vec<String>>) -> &mut Vec<String> {
        hours.values_mut().next().expect("an hour")
    }

    #[test]
    fn all_lines_in_order_are_right() {
        let verdict = verdict(|_| ());
        let right = CheckResult {
            found: 200,
            ..CheckResult::default()
        };
        assert_eq!(verdict, right);
    }

    #[test]
    fn finds_missing_and_repeated_lines() {
        let cut = verdict(|hours| drop(first(hours).pop()));
        assert_eq!((cut.missing, cut.repeated), (1, 0));
        let doubled = verdict(|hours| {
            let lines = first(hours);
            lines.insert(0, lines[0].clone());
        });
        assert_eq!((doubled.missing, doubled.repeated), (0, 1));
        let lost = verdict(|hours| drop(hours.pop_first()));
        assert!(lost.missing > 20);
    }

    #[test]
    fn finds_disorder_and_lines_that_belong_elsewhere() {
        assert_eq!(verdict(|hours| first(hours).swap(3, 4)).disordered, 1);
        let moved = verdict(|hours| {
            let line = first(hours).remove(0);
            hours.values_mut().last().expect("an hour").insert(0, line);
        });
        assert_eq!((moved.foreign, moved.missing), (1, 1));
        let changed = verdict(|hours| first(hours)[0].push('!'));
        assert_eq!((changed.foreign, changed.missing), (1, 1));
    }
}
