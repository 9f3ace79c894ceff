//! Compares what messages are taken for with the servers' own files, in every language.
//!
//! `cargo xtask messages` finds the files of all servers on which tests run, and runs these tests.

mod filling;
#[cfg(feature = "_mysql")]
mod mysql;
#[cfg(feature = "_postgres")]
mod postgres;

use std::env;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// The directories that the variable names, separated by colons.
fn directories(variable: &str) -> Vec<PathBuf> {
    let directories = env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask messages`"));
    env::split_paths(&directories).collect()
}

/// The entries of a directory, in order.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("a name").path()).collect();
    entries.sort();
    entries
}

fn contents(file: &Path) -> Vec<u8> {
    fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    usize::try_from(u32::from_le_bytes(four)).expect("a position in a file")
}

/// What differs from what is expected, once each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn expect<T: Copy + PartialEq + Debug>(&mut self, found: T, expected: T, what: &str) {
        if found != expected {
            let difference = format!("{what}\n    is {found:?}, expected {expected:?}");
            if !self.0.contains(&difference) {
                self.0.push(difference);
            }
        }
    }

    fn assert_none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}
