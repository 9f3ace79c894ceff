//! `cargo xtask check`: everything that can be said about the code without a database.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

mod allowed_programs;
mod client_libraries;
mod modules;
mod outcome;
mod package;

use self::outcome::{Outcome, outcome, passes};
use crate::cargo::{PACKAGE, Workspace, cargo, root};
use crate::{interrupt, path_lookup, run, setup};

/// Lints at their strictest, for every call alike: clippy does what `cargo check` does, so that dependencies are compiled
/// once for each set of features, and what is passed behind `--` does not reach them.
const LINTS: [&str; 5] = ["--", "-D", "warnings", "-D", "clippy::incompatible_msrv"];

/// Runs all checks, also after one has failed, and reports them at the end.
pub(crate) fn check() -> Result<u8> {
    setup::prepare_build()?;
    let workspace = Workspace::load()?;
    let mut report = Vec::new();
    let mut checked = |name: &str, check: &mut dyn FnMut() -> Result<Outcome>| -> Result<()> {
        println!("xtask: {name}");
        let start = Instant::now();
        let outcome = check().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        interrupt::check()?;
        report.push((name.to_owned(), outcome, start.elapsed().as_secs()));
        Ok(())
    };
    checked("formatting", &mut || {
        passes(&mut cargo(["fmt", "--all", "--check"]))
    })?;
    checked("lints", &mut || {
        passes(cargo(["clippy", "--workspace", "--all-targets", "--all-features"]).args(LINTS))
    })?;
    // What a feature brings can't be linked to without it.
    checked("documentation without features", &mut || {
        let mut doc = cargo(["doc", "--package", PACKAGE, "--no-deps"]);
        passes(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    // The last one stays in target/doc.
    checked("documentation", &mut || {
        let mut doc = cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
        passes(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    checked("combinations of features", &mut || {
        combinations(&workspace.features())
    })?;
    checked(
        "asynchronous connections without client libraries",
        &mut client_libraries::check,
    )?;
    checked(
        "programs that the sources run",
        &mut allowed_programs::check,
    )?;
    checked("modules", &mut modules::check)?;
    checked("package", &mut || package::check(&workspace))?;
    checked("oldest supported Rust", &mut || oldest_rust(&workspace))?;
    checked("licences and sources (cargo deny)", &mut || {
        with_tool("cargo-deny", &mut deny(&["licenses", "bans", "sources"]))
    })?;
    checked("known vulnerabilities (cargo deny)", &mut vulnerabilities)?;
    checked("compatible API (cargo semver-checks)", &mut semver)?;

    println!();
    let mut code = 0;
    for (name, outcome, seconds) in report {
        match outcome {
            Outcome::Passed => println!("xtask: passed: {name} ({seconds} s)"),
            Outcome::Skipped(reason) => println!("xtask: NOT MADE: {name}: {reason}"),
            Outcome::Failed(reason) => {
                println!("xtask: FAILED: {name}: {reason}");
                code = 1;
            }
        }
    }
    Ok(code)
}

/// The sets of features that are compiled: each engine alone, all of them, and both with pools. The modules of two engines have
/// nothing to do with each other. All subsets would take an hour.
const SETS: [&str; 19] = [
    "",
    "r2d2",
    "postgres",
    "postgres,r2d2",
    "mysql",
    "mysql,r2d2",
    "sqlite",
    "sqlite,r2d2",
    "postgres,mysql,sqlite",
    "postgres,mysql,sqlite,r2d2",
    "bb8",
    "postgres,bb8",
    "async-postgres",
    "async-mysql",
    "async-sqlite",
    "async-postgres,async-mysql,async-sqlite",
    "async-postgres,bb8",
    "async-mysql,async-sqlite,deadpool",
    "postgres,r2d2,async-postgres",
];

/// The sets compile without a warning, each by itself. All features together are part of the lints.
fn combinations(features: &[&str]) -> Result<Outcome> {
    let mut failed = Vec::new();
    for feature in features.iter().filter(|name| !name.starts_with('_')) {
        if !SETS
            .iter()
            .any(|set| set.split(',').any(|name| name == *feature))
        {
            failed.push(format!("`{feature}` is in no set of xtask/src/check.rs"));
        }
    }
    for chosen in SETS {
        println!(
            "xtask: features: {}",
            if chosen.is_empty() { "none" } else { chosen }
        );
        let mut clippy = cargo([
            "clippy",
            "--quiet",
            "--package",
            PACKAGE,
            "--lib",
            "--no-default-features",
        ]);
        if !run::run(clippy.args(["--features", chosen]).args(LINTS))?.success() {
            failed.push(format!("[{chosen}]"));
        }
    }
    Ok(if failed.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(failed.join(" "))
    })
}

/// Compiles with the Rust version that Cargo.toml promises.
fn oldest_rust(workspace: &Workspace) -> Result<Outcome> {
    let version = workspace.rust_version()?;
    let installed = match path_lookup::find("rustup") {
        Some(rustup) => run::output(Command::new(rustup).args(["toolchain", "list"]))?,
        None => String::new(),
    };
    let is_it = |name: &&str| {
        let rest = name.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || rest.starts_with('.'))
    };
    let Some(toolchain) = installed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .find(is_it)
    else {
        let reason = format!(
            "Rust {version} is not installed (rustup toolchain install {version}); clippy's incompatible_msrv ran"
        );
        return Ok(Outcome::Skipped(reason));
    };
    let mut check = Command::new("rustup");
    check.args([
        "run",
        toolchain,
        "cargo",
        "check",
        "--package",
        PACKAGE,
        "--lib",
        "--all-features",
    ]);
    passes(check.current_dir(root()))
}

/// Compares the API with that of the last release.
fn semver() -> Result<Outcome> {
    let mut git = Command::new("git");
    let tags = run::output(
        git.args(["tag", "--list", "v*", "--sort=-version:refname"])
            .current_dir(root()),
    );
    let tags = tags.unwrap_or_default();
    let Some(release) = tags.lines().next() else {
        return Ok(Outcome::Skipped(
            "there is no release (a tag v*) to compare with".into(),
        ));
    };
    with_tool(
        "cargo-semver-checks",
        &mut cargo([
            "semver-checks",
            "--package",
            PACKAGE,
            "--baseline-rev",
            release,
        ]),
    )
}

fn deny(checks: &[&str]) -> Command {
    let mut command = cargo(["deny", "--all-features", "check"]);
    command.args(checks);
    command
}

/// The list of vulnerabilities comes from the network, unlike anything else here.
fn vulnerabilities() -> Result<Outcome> {
    let mut deny = deny(&["advisories"]);
    if path_lookup::find("cargo-deny").is_none() {
        return with_tool("cargo-deny", &mut deny);
    }
    let (status, printed, errors) = run::capture(&mut deny)?;
    print!("{printed}");
    eprint!("{errors}");
    if errors.contains("failed to fetch advisory database") {
        return Ok(Outcome::Skipped("their list cannot be fetched".into()));
    }
    Ok(outcome(status))
}

fn with_tool(program: &str, command: &mut Command) -> Result<Outcome> {
    if path_lookup::find(program).is_none() {
        return Ok(Outcome::Skipped(format!(
            "{program} is not installed (cargo install --locked {program})"
        )));
    }
    passes(command)
}
