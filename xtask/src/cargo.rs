//! Calling cargo, and what it knows about the workspace.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{self, words};

/// The package that all this is about.
pub(crate) const PACKAGE: &str = "diesel-locks";
/// The packages and features of all tests and programs. The same everywhere: for others, cargo builds their dependencies anew.
pub(crate) const ALL: [&str; 2] = ["--workspace", "--all-features"];

/// The workspace's root directory.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A cargo command, run in the workspace.
pub(crate) fn cargo<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    forget_own_package(&mut command);
    command
}

/// Removes the variables with which the outer cargo describes the package of this program.
pub(crate) fn forget_own_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let own =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(own) {
            command.env_remove(name);
        }
    }
}

/// A test, example or other program that cargo has built.
pub(crate) struct Program {
    /// The directory of its package, and its name there.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// Where cargo would run it.
    pub(crate) directory: PathBuf,
    /// Whether it is to be run as a test: examples assert what they show.
    pub(crate) is_test: bool,
    pub(crate) is_example: bool,
}

/// Runs a command of cargo that builds, and returns the programs that it has built.
pub(crate) fn build(command: &mut Command) -> Result<Vec<Program>> {
    command.args(["--message-format", "json-render-diagnostics"]);
    let mut programs = Vec::new();
    for line in run::printed(command)?.lines() {
        let built: Value = serde_json::from_str(line).context("a message of cargo")?;
        let (Some(file), Some(manifest)) = (
            built["executable"].as_str(),
            built["manifest_path"].as_str(),
        ) else {
            continue;
        };
        let target = &built["target"];
        let directory = Path::new(manifest).parent().unwrap_or(root());
        let name = directory.strip_prefix(root()).unwrap_or(directory);
        let name = name.join(target["name"].as_str().unwrap_or_default());
        let is_example = target["kind"][0] == "example";
        programs.push(Program {
            name: name.display().to_string(),
            file: file.into(),
            directory: directory.to_owned(),
            is_test: built["profile"]["test"] == true,
            is_example,
        });
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Where cargo builds.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str();
    target.map(PathBuf::from).context("no target directory")
}

/// What `cargo metadata` says.
pub(crate) fn metadata() -> Result<Value> {
    let json = run::output(&mut cargo(words("metadata --no-deps --format-version 1")))?;
    serde_json::from_str(&json).context("cargo metadata")
}

/// What `cargo metadata` says about [`PACKAGE`].
pub(crate) fn package() -> Result<Value> {
    let mut metadata = metadata()?;
    let mut packages = metadata["packages"].as_array_mut().into_iter().flatten();
    let found = packages.find(|package| package["name"] == PACKAGE);
    found.map(Value::take).context("there is no such package")
}
