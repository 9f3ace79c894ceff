//! The package as it would be published.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::outcome::Outcome;
use crate::cargo::{PACKAGE, cargo, target};
use crate::programs::entries;
use crate::run;

/// Databases whose migrations the library embeds, and users of its `diesel migration` may copy.
const DATABASES: [&str; 3] = ["postgres", "mysql", "sqlite"];

/// Makes the package, looks into it and compiles it by itself.
pub(crate) fn check(package: &Value) -> Result<Outcome> {
    let arguments = [
        "package",
        "--package",
        PACKAGE,
        "--allow-dirty",
        "--no-verify",
    ];
    if !run::run(&mut cargo(arguments))?.success() {
        println!("xtask: once more without the network, should that be the reason");
        if !run::run(cargo(arguments).arg("--offline"))?.success() {
            return Ok(Outcome::Failed(
                "cargo package has failed, see above".into(),
            ));
        }
    }
    let target = target()?;
    let version = package["version"].as_str().context("no version")?;
    let name = format!("{PACKAGE}-{version}");
    let file = target.join("package").join(format!("{name}.crate"));
    // Not in the workspace's directory, where cargo would take it for part of the workspace.
    let directory = tempfile::tempdir()?;
    let mut tar = Command::new("tar");
    run::output(tar.arg("-xzf").arg(&file).arg("-C").arg(directory.path()))?;
    let unpacked = directory.path().join(name);

    let problems = problems(&unpacked)?;
    if !problems.is_empty() {
        return Ok(Outcome::of(&problems));
    }
    // Without features, as cargo would build it to verify it, and with all. The workspace's target directory has the dependencies.
    for features in ["--no-default-features", "--all-features"] {
        let mut check = cargo(["check", "--lib", features]);
        check
            .current_dir(&unpacked)
            .env("CARGO_TARGET_DIR", &target);
        if !run::run(&mut check)?.success() {
            return Ok(Outcome::Failed(format!(
                "cargo check {features}, see above"
            )));
        }
    }
    Ok(Outcome::Passed)
}

/// What is wrong with the package's files.
fn problems(unpacked: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for database in DATABASES {
        let migrations = files(unpacked.join("migrations").join(database));
        for script in ["up.sql", "down.sql"] {
            if !migrations.iter().any(|file| file.ends_with(script)) {
                problems.push(format!("no {script} in migrations/{database}"));
            }
        }
    }
    for file in files(unpacked.to_owned()) {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        for (number, line) in text.lines().enumerate() {
            let line = line.replace("forbid(unsafe_code)", "");
            if line
                .replace("unsafe_to_cache_prepared", "")
                .contains("unsafe")
            {
                let file = file.strip_prefix(unpacked).unwrap_or(&file);
                problems.push(format!("'unsafe' in {}:{}", file.display(), number + 1));
            }
        }
    }
    Ok(problems)
}

/// All files below the directory.
fn files(directory: PathBuf) -> Vec<PathBuf> {
    let (directories, mut files): (Vec<_>, Vec<_>) =
        entries(directory).partition(|path| path.is_dir());
    files.extend(directories.into_iter().flat_map(self::files));
    files
}
