//! Calling cargo, and what it knows about the workspace.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run;

/// The package that all this is about.
pub(crate) const PACKAGE: &str = "diesel-locks";
/// Features of the package's own tests; each of its backends. The same set everywhere: another is compiled anew.
pub(crate) const FEATURES: &str =
    "postgres,mysql,sqlite,r2d2,async-postgres,async-mysql,async-sqlite,bb8,deadpool";

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

/// What `cargo metadata` says.
pub(crate) struct Workspace(Value);

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let json = run::output(&mut cargo([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
        ]))?;
        Ok(Self(serde_json::from_str(&json).context("cargo metadata")?))
    }

    /// Where cargo builds.
    pub(crate) fn target(&self) -> Result<PathBuf> {
        self.0["target_directory"]
            .as_str()
            .map(PathBuf::from)
            .context("cargo metadata names no target directory")
    }

    fn package(&self) -> Option<&Value> {
        self.0["packages"]
            .as_array()?
            .iter()
            .find(|package| package["name"] == PACKAGE)
    }

    /// The package's version.
    pub(crate) fn version(&self) -> Result<&str> {
        self.package()
            .and_then(|package| package["version"].as_str())
            .context("the package has no version")
    }

    /// The oldest Rust that the package supports.
    pub(crate) fn rust_version(&self) -> Result<&str> {
        self.package()
            .and_then(|package| package["rust_version"].as_str())
            .context("the package has no rust-version")
    }

    /// The package's features, without `default`.
    pub(crate) fn features(&self) -> Vec<&str> {
        let features = self
            .package()
            .and_then(|package| package["features"].as_object());
        features
            .into_iter()
            .flat_map(|features| features.keys())
            .map(String::as_str)
            .filter(|&name| name != "default")
            .collect()
    }
}
