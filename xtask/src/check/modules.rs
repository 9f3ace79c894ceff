//! The modules of the library: which of them import which, and how many there are.
//!
//! A room is a file or folder directly below `src`, without what only tests. No room may come to import, by way of others, one
//! that imports it: the rooms that do so today are counted, and their number may only fall.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::outcome::Outcome;
use crate::cargo::root;

/// The largest numbers that pass. Lower them when they have fallen.
const LIMITS: [(&str, usize); 6] = [
    ("rooms", 31),
    ("rooms of the largest circle", 15),
    ("files", 238),
    ("lines", 34_800),
    ("traits", 44),
    ("macros", 46),
];

/// What only re-exports.
const LISTS: [&str; 2] = ["lib", "prelude"];

pub(crate) fn check() -> Result<Outcome> {
    let source = root().join("src");
    let mut files = Vec::new();
    find(&source, &mut files)?;
    let library = code(&fs::read_to_string(source.join("lib.rs"))?);
    let exported = exported(&library);
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut lines, mut traits, mut macros) = (0, 0, 0);
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        lines += text.lines().count();
        let text = code(&text);
        traits += text.lines().filter(|line| declares(line, "trait ")).count();
        macros += text.matches("macro_rules! ").count();
        let room = room(&source, file)?;
        if LISTS.contains(&room.as_str()) {
            continue;
        }
        let imports = rooms.entry(room).or_default();
        for name in names_in(&text, "crate::") {
            imports.insert(exported.get(&name).cloned().unwrap_or(name));
        }
    }
    let names: BTreeSet<String> = rooms.keys().cloned().collect();
    for (room, imports) in &mut rooms {
        imports.retain(|name| name != room && names.contains(name));
    }
    let circle = largest_circle(&rooms);
    let counted = [
        rooms.len(),
        circle.len(),
        files.len(),
        lines,
        traits,
        macros,
    ];
    let mut failed = Vec::new();
    for ((what, limit), counted) in LIMITS.into_iter().zip(counted) {
        println!("xtask: {what}: {counted}, at most {limit}");
        if counted > limit {
            failed.push(format!("{counted} {what}, more than {limit}"));
        }
    }
    for room in &circle {
        let within = rooms[room].intersection(&circle).cloned();
        let within: Vec<String> = within.collect();
        println!("xtask: in the circle: {room} imports {}", within.join(", "));
    }
    Ok(if failed.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(failed.join("; "))
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
        } else {
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

/// The largest set of rooms each of which imports all others, by way of others.
fn largest_circle(rooms: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = rooms
        .keys()
        .map(|room| {
            let mut reached = BTreeSet::new();
            let mut open: Vec<&String> = rooms[room].iter().collect();
            while let Some(next) = open.pop() {
                if reached.insert(next) {
                    open.extend(&rooms[next]);
                }
            }
            (room, reached)
        })
        .collect();
    let circle = |room: &String| -> BTreeSet<String> {
        let back = reached[room]
            .iter()
            .filter(|other| reached[**other].contains(room));
        back.map(|other| (*other).clone()).collect()
    };
    let circles = rooms.keys().map(circle);
    circles.max_by_key(BTreeSet::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(arrows: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        arrows
            .iter()
            .map(|(room, imports)| ((*room).to_owned(), owned(imports)))
            .collect()
    }

    #[test]
    fn circles_are_found() {
        let none = rooms(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
        assert_eq!(largest_circle(&none).len(), 0);
        let some = rooms(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["a"])]);
        let circle: Vec<String> = largest_circle(&some).into_iter().collect();
        assert_eq!(circle, ["b", "c"]);
    }

    #[test]
    fn imports_are_found() {
        let text = code(
            "use crate::queue::{Ticket, Turn}; // crate::not\nuse crate::{Error, wait::A, b::{C, D}};",
        );
        assert_eq!(names_in(&text, "crate::"), ["queue", "Error", "wait", "b"]);
        let exported = exported("pub use error::{Error, Kind};\npub use engine::literal::Text;");
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
