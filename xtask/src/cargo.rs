//! Calling cargo, what it knows about the workspace, and the Diesel CLI that it installs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{self, words};

/// The package that all this is about.
pub(crate) const PACKAGE: &str = "diesel-locks";
/// The packages and features of all tests and programs. The same everywhere: for others, cargo builds their dependencies anew.
pub(crate) const ALL: [&str; 2] = ["--workspace", "--all-features"];

pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A command of cargo, of words without spaces.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words(arguments)).current_dir(root());
    forget_own_package(&mut command);
    command
}

/// Removes the variables with which the outer cargo describes the package of this program.
pub(crate) fn forget_own_package(command: &mut Command) {
    run::remove_variables(command, &["CARGO_PKG_", "CARGO_MANIFEST_"]);
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
        let (file, manifest) = (&built["executable"], &built["manifest_path"]);
        let (Some(file), Some(manifest)) = (file.as_str(), manifest.as_str()) else {
            continue;
        };
        let target = &built["target"];
        let directory = Path::new(manifest).parent().unwrap_or(root());
        let name = directory.strip_prefix(root()).unwrap_or(directory);
        let name = name.join(target["name"].as_str().unwrap_or_default());
        programs.push(Program {
            name: name.display().to_string(),
            file: file.into(),
            directory: directory.to_owned(),
            is_test: built["profile"]["test"] == true,
            is_example: target["kind"][0] == "example",
        });
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The target directory: this program is in a directory of it.
pub(crate) fn target() -> Result<PathBuf> {
    let here = env::current_exe()?;
    let target = here.ancestors().nth(2).context("no target directory")?;
    Ok(target.to_owned())
}

/// What `cargo metadata` says about [`PACKAGE`].
pub(crate) fn package() -> Result<Value> {
    let json = run::output(&mut cargo("metadata --no-deps --format-version 1"))?;
    let mut metadata: Value = serde_json::from_str(&json).context("cargo metadata")?;
    let mut packages = metadata["packages"].as_array_mut().into_iter().flatten();
    let found = packages.find(|package| package["name"] == PACKAGE);
    found.map(Value::take).context("there is no such package")
}

/// The variable from which the tests get the path of the `diesel` command, with which one compares the migrations with the schema
/// that the code uses.
pub(crate) const DIESEL_CLI: &str = "DIESEL_CLI";
/// The versions whose output is that of the Diesel that is used here.
const DIESEL_VERSION: &str = "2.3";

/// The path of the `diesel` command, if it was installed.
pub(crate) fn installed_diesel_cli() -> Result<Option<PathBuf>> {
    let path = target()?.join("tools/bin/diesel");
    Ok(path.exists().then_some(path))
}

/// Its path, after installing it if need be.
pub(crate) fn diesel_cli() -> Result<PathBuf> {
    let root = target()?.join("tools");
    if let Some(path) = installed_diesel_cli()? {
        return Ok(path);
    }
    println!(
        "xtask: installing diesel_cli {DIESEL_VERSION} in {}, which takes some minutes, but only once",
        root.display()
    );
    // Without optimization: it is built once and used for seconds.
    let mut install = cargo(&format!(
        "install diesel_cli --version ~{DIESEL_VERSION} --locked --debug --no-default-features \
         --features postgres,mysql,sqlite-bundled --root"
    ));
    run::succeed(install.arg(&root))?;
    Ok(root.join("bin/diesel"))
}
