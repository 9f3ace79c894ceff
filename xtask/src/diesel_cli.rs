//! The `diesel` command, with which a test compares the migrations with the schema that the code uses.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo::{Workspace, cargo};
use crate::{path_lookup, run};

/// The variable from which the tests get its path.
pub(crate) const VARIABLE: &str = "DIESEL_CLI";
/// The versions whose output is that of the Diesel that is used here.
const VERSION: &str = "2.3";

/// Its path, if the machine has it already.
pub(crate) fn found() -> Result<Option<PathBuf>> {
    let own = std::env::var_os(VARIABLE).map(PathBuf::from);
    let candidates = own
        .into_iter()
        .chain(path_lookup::find("diesel"))
        .chain([installed()?]);
    Ok(candidates
        .into_iter()
        .find(|path| path.is_file() && fits(path)))
}

/// Its path, after installing it if need be.
pub(crate) fn path() -> Result<PathBuf> {
    if let Some(path) = found()? {
        return Ok(path);
    }
    let root = tools()?;
    println!(
        "xtask: installing diesel_cli {VERSION} in {}, which takes some minutes, but only once",
        root.display()
    );
    let version = format!("~{VERSION}");
    let mut install = cargo([
        "install",
        "diesel_cli",
        "--version",
        &version,
        "--locked",
        "--no-default-features",
    ]);
    install
        .args(["--features", "postgres,mysql,sqlite-bundled", "--root"])
        .arg(root);
    let status = run::run(&mut install)?;
    if !status.success() {
        bail!("cargo install diesel_cli has failed ({status})");
    }
    installed()
}

fn tools() -> Result<PathBuf> {
    Ok(Workspace::load()?.target()?.join("tools"))
}

fn installed() -> Result<PathBuf> {
    Ok(tools()?.join("bin").join("diesel"))
}

fn fits(program: &Path) -> bool {
    let printed = run::output(Command::new(program).arg("--version"));
    printed.is_ok_and(|printed| has_version(&printed))
}

/// Told by any word of what it prints, as that looks different from version to version.
fn has_version(printed: &str) -> bool {
    let begin = format!("{VERSION}.");
    printed
        .split_whitespace()
        .any(|word| word.starts_with(&begin))
}

#[cfg(test)]
mod tests {
    use super::has_version;

    #[test]
    fn versions() {
        assert!(has_version(
            "diesel \n Version: 2.3.14\n Supported Backends: postgres mysql sqlite"
        ));
        assert!(has_version("diesel 2.3.0"));
        assert!(!has_version("diesel \n Version: 2.2.3\n"));
    }
}
