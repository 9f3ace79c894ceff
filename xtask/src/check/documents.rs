//! The documents name files and tests that exist.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::cargo::root;
use crate::check::outcome::Outcome;
use crate::run;

pub(crate) fn check() -> Result<Outcome> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = run::output(git.current_dir(root()))?;
    let with = |extension| move |file: &&str| file.ends_with(extension);
    let read = |file| fs::read_to_string(root().join(file)).unwrap_or_default();
    let sources: String = listed.lines().filter(with(".rs")).map(read).collect();
    let mut missing = Vec::new();
    for document in listed.lines().filter(with(".md")) {
        let text = read(document);
        let parts: Vec<&str> = text.split('`').collect();
        for pair in parts.chunks_exact(2) {
            let (before, name) = (pair[0].trim_end(), pair[1]);
            let exists = if name.contains(char::is_whitespace) {
                true
            } else if name.strip_suffix(".rs").is_some() {
                let end = format!("/{name}");
                listed
                    .lines()
                    .any(|file| file == name || file.ends_with(&end))
            } else if before.ends_with("test") || before.ends_with("tests") {
                let last = name.rsplit("::").next().unwrap_or(name);
                sources.contains(&format!("fn {}", last.trim_end_matches("..")))
            } else {
                true
            };
            if !exists {
                missing.push(format!("{document}: there is no `{name}`"));
            }
        }
    }
    Ok(Outcome::of(&missing))
}
