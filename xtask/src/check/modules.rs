//! The modules of the library: on which floor each stands, and how many there are.
//!
//! A room is a file or folder directly below `src`, without what only tests. A room imports only from rooms on lower floors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cargo::root;
use crate::programs::entries;

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
const LIMITS: [(&str, usize); 6] = [
    ("files", 125),
    ("lines", 31_288),
    ("lines of the longest file", 536),
    ("words of comments", 53_457),
    ("traits", 26),
    ("macros", 14),
];

/// What only re-exports.
const LISTS: [&str; 2] = ["lib", "prelude"];

pub(super) fn problems() -> Result<Vec<String>> {
    let source = root().join("src");
    let files = find(source.clone());
    let library = code(&fs::read_to_string(source.join("lib.rs"))?);
    let exported = exported(&library);
    let floors = BTreeMap::from(FLOORS);
    let mut problems = BTreeSet::new();
    let (mut sizes, mut traits, mut macros, mut comments) = (Vec::new(), 0, 0, 0);
    for file in &files {
        let whole = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        sizes.push(whole.lines().count());
        let text = code(&whole);
        let lines = whole.lines();
        let comments_of_file = lines.filter_map(|line| Some(&line[comment(line)?..]));
        comments += count_words(comments_of_file.map(|it| it.trim_start_matches(['/', '!'])));
        traits += text.lines().filter(|line| declares_trait(line)).count();
        macros += text.matches("macro_rules! ").count();
        let file = file.strip_prefix(&source)?;
        let room = name_at(file.to_str().context("a name")?);
        if LISTS.contains(&room) {
            continue;
        }
        let Some(floor) = floors.get(room) else {
            problems.insert(format!("{room} has no floor"));
            continue;
        };
        for name in imported(&text) {
            let other = exported.get(name).copied().unwrap_or(name);
            let Some(other_floor) = floors.get(other).filter(|_| other != room) else {
                continue;
            };
            if other_floor >= floor {
                let file = file.display();
                problems.insert(format!("{file} imports from {other}, which is not below"));
            }
        }
    }
    sizes.sort_unstable();
    let median = sizes[sizes.len() / 2];
    println!("xtask: lines of a file, median: {median}");
    let lines = sizes.iter().sum();
    let longest = sizes.last().copied().unwrap_or_default();
    let counted = [files.len(), lines, longest, comments, traits, macros];
    for ((what, limit), counted) in LIMITS.into_iter().zip(counted) {
        println!("xtask: {what}: {counted}, at most {limit}");
        if counted > limit {
            problems.insert(format!("{counted} {what}, more than {limit}"));
        }
    }
    Ok(problems.into_iter().collect())
}

/// The files of the library at or below a path, without those that only test.
fn find(path: PathBuf) -> Vec<PathBuf> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    if name == "tests" || name.ends_with("_tests") {
        return Vec::new();
    }
    if path.is_dir() {
        return entries(path).flat_map(find).collect();
    }
    let is_source = path.extension().is_some_and(|it| it == "rs");
    is_source.then_some(path).into_iter().collect()
}

/// The text without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    let lines = lines.map(|line| &line[..comment(line).unwrap_or(line.len())]);
    lines.collect::<Vec<_>>().join("\n")
}

/// Where the comment of a line begins.
fn comment(line: &str) -> Option<usize> {
    // Not that of a URL.
    line.find("//").filter(|at| !line[..*at].ends_with(':'))
}

/// How many words stand outside of blocks of code.
pub(super) fn count_words<'a>(lines: impl Iterator<Item = &'a str>) -> usize {
    let (mut count, mut in_code) = (0, false);
    for line in lines.map(str::trim) {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let is_word = |word: &&str| word.contains(char::is_alphanumeric);
            count += line.split_whitespace().filter(is_word).count();
        }
    }
    count
}

/// Whether the line begins with `trait`, `pub trait` or `pub(..) trait`, and the name is not that of a macro's argument.
fn declares_trait(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.find(|word| !word.starts_with("pub")) == Some("trait")
        && words.next().is_some_and(|name| !name.starts_with('$'))
}

/// The name with which the text begins.
fn name_at(text: &str) -> &str {
    let mut names = text.trim_start().split(|c: char| !is_of_name(c));
    names.next().unwrap_or_default()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The rooms of the names that `lib.rs` exports, a path a line.
fn exported(library: &str) -> BTreeMap<&str, &str> {
    let mut exported = BTreeMap::new();
    for line in library.lines() {
        let path = line.trim_start().trim_start_matches("pub use crate::");
        if let Some((room, names)) = path.split_once("::") {
            let names = names.split(|c| !is_of_name(c));
            let names = names.filter(|name| !name.is_empty());
            exported.extend(names.map(|name| (name, room)));
        }
    }
    exported
}

/// The first names of the paths that begin with `crate::`. Of paths in braces further ones too, which are of the same rooms.
fn imported(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for path in text.split("crate::").skip(1) {
        if let Some(list) = path.strip_prefix('{') {
            let list = list.split(';').next().unwrap_or_default();
            names.extend(list.split([',', '{']).map(name_at));
        } else {
            names.push(name_at(path));
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
        let imported = imported(&text);
        assert_eq!(imported, ["queue", "Error", "wait", "b", "C", "D"]);
        let exported = exported(
            "pub use crate::error::{Error, Kind};\npub use crate::{\n    engine::literal::Text,\n};",
        );
        assert_eq!(exported["Error"], "error");
        assert_eq!(exported["Text"], "engine");
    }

    #[test]
    fn words_are_counted() {
        let text = "# One, two - `three`\n```rust\nnot::this();\n```\nfour";
        assert_eq!(count_words(text.lines()), 4);
    }

    #[test]
    fn traits_are_counted() {
        for line in ["trait A {", "    pub(crate) trait A {", "pub trait A:"] {
            assert!(declares_trait(line), "{line}");
        }
        assert!(!declares_trait("use a::trait_b;"));
        assert!(!declares_trait("pub trait $blocking {"));
    }
}
