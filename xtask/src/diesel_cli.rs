//! The `diesel` command, with which a test compares the migrations with the schema that the code uses.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::cargo::{Workspace, cargo};
use crate::{programs, run};

/// The variable that tells the tests where it is.
pub(crate) const VARIABLE: &str = "DIESEL_CLI";
/// The versions whose output is that of the Diesel that is used here.
const VERSION: &str = "2.3";

/// Its path, if the machine has it already.
pub(crate) fn found() -> Result<Option<PathBuf>> {
    let own = std::env::var_os(VARIABLE).map(PathBuf::from);
    let candidates = own
        .into_iter()
        .chain(programs::find("diesel"))
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

fn fits(path: &std::path::Path) -> bool {
    // `Diesel CLI 2.3.2` or `diesel 2.3.2`, depending on its version, with a list of databases in other lines.
    programs::version(path).is_some_and(|version| {
        version.split_whitespace().any(|word| {
            word.trim_start_matches('v')
                .starts_with(&format!("{VERSION}."))
        })
    })
}
