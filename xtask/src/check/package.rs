//! The package as it would be published.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::outcome::{Outcome, passes};
use crate::cargo::{PACKAGE, Workspace, cargo};
use crate::run;

/// Databases whose migrations the library embeds, and users of its `diesel migration` may copy.
const DATABASES: [&str; 3] = ["postgres", "mysql", "sqlite"];

/// Makes the package, looks into it and builds it by itself.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let arguments = ["package", "--package", PACKAGE, "--allow-dirty"];
    if !run::run(&mut cargo(arguments))?.success() {
        println!("xtask: once more without the network, should that be the reason");
        if !run::run(cargo(arguments).arg("--offline"))?.success() {
            return Ok(Outcome::Failed(
                "cargo package has failed, see above".into(),
            ));
        }
    }
    let target = workspace.target()?;
    let name = format!("{PACKAGE}-{}", workspace.version()?);
    let file = target.join("package").join(format!("{name}.crate"));
    // Not in the workspace's directory, where cargo would take it for part of the workspace.
    let directory = tempfile::tempdir()?;
    run::output(
        Command::new("tar")
            .arg("-xzf")
            .arg(&file)
            .arg("-C")
            .arg(directory.path()),
    )?;
    let unpacked = directory.path().join(name);

    let problems = problems(&unpacked)?;
    if !problems.is_empty() {
        return Ok(Outcome::Failed(problems.join("; ")));
    }
    let mut build = cargo(["build", "--features", &workspace.features().join(",")]);
    // The workspace's target directory, in which the dependencies are built already.
    passes(build.current_dir(&unpacked).env("CARGO_TARGET_DIR", target))
}

/// What is wrong with the package's files.
fn problems(unpacked: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for database in DATABASES {
        let migrations = unpacked.join("migrations").join(database);
        let all = files(&migrations).unwrap_or_default();
        for script in ["up.sql", "down.sql"] {
            if !all.iter().any(|file| file.ends_with(script)) {
                problems.push(format!("no {script} in migrations/{database}"));
            }
        }
    }
    for file in files(unpacked)?
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
    {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for (number, line) in text.lines().enumerate() {
            let allowed = ["forbid(unsafe_code)", "unsafe_to_cache_prepared"];
            let rest = allowed
                .iter()
                .fold(line.to_owned(), |rest, name| rest.replace(name, ""));
            if rest.contains("unsafe") {
                let file = file.strip_prefix(unpacked).unwrap_or(file);
                problems.push(format!("'unsafe' in {}:{}", file.display(), number + 1));
            }
        }
    }
    Ok(problems)
}

/// All files below the directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push(path);
            }
        }
    }
    Ok(files)
}
