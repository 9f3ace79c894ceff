//! The modules of the library: on which floor each stands, and how many there are.
//!
//! A room is a file or folder directly below `src`, without what only tests. A room imports only from rooms on lower floors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::outcome::Outcome;
use crate::cargo::root;

/// The rooms and their floors.
const FLOORS: [(&str, u32); 10] = [
    ("rt", 1),
    ("error", 2),
    ("queue", 3),
    ("values", 3),
    ("link", 4),
    ("engine", 5),
    ("acts", 6),
    ("pools", 7),
    ("jobs", 8),
    ("api", 9),
];

/// The largest numbers that pass. Lower them when they have fallen.
const LIMITS: [(&str, usize); 5] = [
    ("files", 150),
    ("lines", 29_147),
    ("lines of the longest file", 480),
    ("traits", 44),
    ("macros", 13),
];

/// What only re-exports.
const LISTS: [&str; 2] = ["lib", "prelude"];

pub(crate) fn check() -> Result<Outcome> {
    let source = root().join("src");
    let mut files = Vec::new();
    find(&source, &mut files)?;
    let library = code(&fs::read_to_string(source.join("lib.rs"))?);
    let exported = exported(&library);
    let floors = BTreeMap::from(FLOORS);
    let mut failed = BTreeSet::new();
    let (mut lines, mut longest, mut traits, mut macros) = (0, 0, 0, 0);
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        lines += text.lines().count();
        longest = longest.max(text.lines().count());
        let text = code(&text);
        traits += text.lines().filter(|line| declares(line, "trait ")).count();
        macros += text.matches("macro_rules! ").count();
        let room = room(&source, file)?;
        if LISTS.contains(&room.as_str()) {
            continue;
        }
        let Some(floor) = floors.get(room.as_str()) else {
            failed.insert(format!("{room} has no floor"));
            continue;
        };
        for name in names_in(&text, "crate::") {
            let imported = exported.get(&name).unwrap_or(&name).as_str();
            if imported != room && floors.get(imported).is_some_and(|other| other >= floor) {
                let file = file.strip_prefix(&source).unwrap_or(file).display();
                failed.insert(format!(
                    "{file} imports from {imported}, which is not below"
                ));
            }
        }
    }
    let counted = [files.len(), lines, longest, traits, macros];
    for ((what, limit), counted) in LIMITS.into_iter().zip(counted) {
        println!("xtask: {what}: {counted}, at most {limit}");
        if counted > limit {
            failed.insert(format!("{counted} {what}, more than {limit}"));
        }
    }
    Ok(if failed.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(failed.into_iter().collect::<Vec<_>>().join("; "))
    })
}

/// The files of the library, without those that only test.
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if name.is_some_and(|name| name == "tests" || name.ends_with("_tests")) {
            continue;
        }
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn room(source: &Path, file: &Path) -> Result<String> {
    let first = file.strip_prefix(source)?.iter().next();
    let first = first.and_then(|first| first.to_str()).context("a name")?;
    Ok(first.trim_end_matches(".rs").to_owned())
}

/// The text without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    let lines = lines.map(|line| match line.find("//") {
        // Not that of a URL.
        Some(at) if !line[..at].ends_with(':') => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn declares(line: &str, keyword: &str) -> bool {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        Some(rest) => rest,
        None => line,
    };
    line.trim_start().starts_with(keyword)
}

/// The rooms of the names that `lib.rs` exports.
fn exported(library: &str) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for statement in library.split(';') {
        let Some((_, path)) = statement.rsplit_once("pub use ") else {
            continue;
        };
        let path = path.trim_start_matches("crate::");
        let Some((room, names)) = path.split_once("::") else {
            continue;
        };
        for name in names.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
            if name.starts_with(char::is_uppercase) || names.ends_with(name) {
                exported.insert(name.to_owned(), room.trim().to_owned());
            }
        }
    }
    exported
}

/// The first names of the paths that begin with this, also in braces.
fn names_in(text: &str, start: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
        text.trim_start().chars().take_while(is_name).collect()
    };
    let mut names = Vec::new();
    for (at, _) in text.match_indices(start) {
        let rest = &text[at + start.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(name(rest));
            continue;
        };
        let mut depth = 0_u32;
        let mut from = 0;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    names.push(name(&list[from..at]));
                    break;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    names.push(name(&list[from..at]));
                    from = at + 1;
                }
                _ => {}
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found() {
        let text = code(
            "use crate::queue::{Ticket, Turn}; // crate::not\nuse crate::{Error, wait::A, b::{C, D}};",
        );
        assert_eq!(names_in(&text, "crate::"), ["queue", "Error", "wait", "b"]);
        let exported =
            exported("pub use error::{Error, Kind};\npub use crate::engine::literal::Text;");
        assert_eq!(exported["Error"], "error");
        assert_eq!(exported["Text"], "engine");
    }

    #[test]
    fn traits_are_counted() {
        for line in [
            "trait A {",
            "    pub(crate) trait A {",
            "pub trait A:",
            "pub(in crate::b) trait A",
        ] {
            assert!(declares(line, "trait "), "{line}");
        }
        assert!(!declares("use a::trait_b;", "trait "));
    }
}
