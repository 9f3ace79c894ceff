//! Which programs the sources run: only those that a small image has, or that `cargo xtask setup` installs.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::outcome::Outcome;
use crate::cargo::root;

/// What the sources may run by name.
const PROGRAMS: [&str; 13] = [
    "apt-get",
    "cargo",
    "cc",
    "cp",
    "docker",
    "dpkg-deb",
    "git",
    "mysql_config",
    "pkg-config",
    "rustup",
    "sh",
    "sudo",
    "tar",
];
/// What shell scripts may not run. `kill` is part of the shell.
const NOT_IN_SCRIPTS: [&str; 6] = ["killall", "pgrep", "pidof", "pkill", "ps", "top"];
/// Directories of the workspace that have sources.
const DIRECTORIES: [&str; 8] = [
    ".ci", ".github", "benches", "examples", "programs", "src", "tests", "xtask",
];

/// The check.
pub(crate) fn check() -> Result<Outcome> {
    let mut problems = Vec::new();
    for directory in DIRECTORIES {
        scan(&root().join(directory), &mut problems)?;
    }
    Ok(if problems.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(problems.join("; "))
    })
}

fn scan(directory: &Path, problems: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            scan(&path, problems)?;
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let others = match path.extension().and_then(OsStr::to_str) {
            Some("rs") => forbidden_in_code(&text),
            None | Some("sh" | "yml") => forbidden_in_script(&text),
            Some(_) => continue,
        };
        let name = path.strip_prefix(root()).unwrap_or(&path).display();
        problems.extend(others.iter().map(|other| format!("{name} runs {other}")));
    }
    Ok(())
}

/// Programs that Rust code names where it runs them, and may not run.
fn forbidden_in_code(text: &str) -> Vec<&str> {
    text.split("Command::new(")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .filter(|program| program.starts_with(char::is_alphanumeric))
        .filter(|program| !PROGRAMS.contains(program))
        .collect()
}

/// Programs that a script may not run.
fn forbidden_in_script(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c))))
        .filter(|word| NOT_IN_SCRIPTS.contains(word))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{forbidden_in_code, forbidden_in_script};

    #[test]
    fn programs_that_may_be_missing_are_found() {
        let new = "Command::new";
        let code =
            format!("{new}(\"ps\").arg(1); {new}(\n    \"kill\"\n); {new}(\"sh\"); {new}(path)");
        assert_eq!(forbidden_in_code(&code), ["ps", "kill"]);
        assert_eq!(forbidden_in_script("# ps\nkill -9 $(pgrep x)"), ["pgrep"]);
        assert_eq!(forbidden_in_script("apt-get; steps; a.ps"), [""; 0]);
    }
}
