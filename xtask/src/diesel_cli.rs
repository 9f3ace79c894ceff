//! The `diesel` command, with which a test compares the migrations with the schema that the code uses.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo::{cargo, target};
use crate::run::words;
use crate::{programs, run};

/// The variable from which the tests get its path.
pub(crate) const VARIABLE: &str = "DIESEL_CLI";
/// The versions whose output is that of the Diesel that is used here.
const VERSION: &str = "2.3";

/// Its path, if the machine has it already.
pub(crate) fn found() -> Result<Option<PathBuf>> {
    let own = env::var_os(VARIABLE).map(PathBuf::from);
    let mut candidates = own
        .into_iter()
        .chain(programs::find("diesel"))
        .chain([target()?.join("tools/bin/diesel")]);
    // `diesel`, ` Version: 2.3.14`, ..; or `diesel 2.3.0`
    let fits = |program: &PathBuf| {
        let mut command = Command::new(program);
        let printed = run::output(command.arg("--version")).unwrap_or_default();
        words(&printed).any(|word| word.starts_with(&format!("{VERSION}.")))
    };
    Ok(candidates.find(|path| path.is_file() && fits(path)))
}

/// Its path, after installing it if need be.
pub(crate) fn path() -> Result<PathBuf> {
    if let Some(path) = found()? {
        return Ok(path);
    }
    let root = target()?.join("tools");
    println!(
        "xtask: installing diesel_cli {VERSION} in {}, which takes some minutes, but only once",
        root.display()
    );
    // Without optimization: it is built once and used for seconds.
    let mut install = cargo(words(
        "install diesel_cli --locked --debug --no-default-features --features postgres,mysql,sqlite-bundled --root",
    ));
    install
        .arg(&root)
        .args(["--version", &format!("~{VERSION}")]);
    let status = run::run(&mut install)?;
    if !status.success() {
        bail!("cargo install diesel_cli has failed ({status})");
    }
    Ok(root.join("bin/diesel"))
}
