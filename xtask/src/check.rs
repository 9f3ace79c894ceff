//! `cargo xtask check`: everything that can be said about the code without a database.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

mod client_libraries;
mod documents;
mod modules;
mod outcome;
mod package;

use self::outcome::{Outcome, outcome, passes};
use crate::cargo::{self, PACKAGE, cargo, root};
use crate::run::words;
use crate::{programs, run, setup};

/// Lints at their strictest, for every call alike: clippy does what `cargo check` does, so that dependencies are compiled
/// once for each set of features, and what is passed behind `--` does not reach them.
const LINTS: [&str; 5] = ["--", "-D", "warnings", "-D", "clippy::incompatible_msrv"];

/// Runs all checks, also after one has failed, and reports them at the end.
pub(crate) fn check() -> Result<u8> {
    setup::prepare_build()?;
    let package = cargo::package()?;
    let checks: [(&str, &dyn Fn() -> Result<Outcome>); 12] = [
        ("formatting", &|| {
            passes(&mut cargo(words("fmt --all --check")))
        }),
        ("lints", &|| {
            passes(cargo(words("clippy --workspace --all-targets --all-features")).args(LINTS))
        }),
        ("documentation", &documentation),
        ("combinations of features", &|| {
            combinations(&package["features"])
        }),
        (
            "asynchronous connections without client libraries",
            &client_libraries::check,
        ),
        ("modules", &modules::check),
        ("names in documents", &documents::check),
        ("package", &|| package::check(&package)),
        ("oldest supported Rust", &|| oldest_rust(&package)),
        ("licences and sources (cargo deny)", &|| {
            with_tool("cargo-deny", &mut deny("licenses bans sources"))
        }),
        ("known vulnerabilities (cargo deny)", &vulnerabilities),
        ("compatible API (cargo semver-checks)", &semver),
    ];
    let mut report = Vec::new();
    for (name, check) in checks {
        println!("xtask: {name}");
        let start = Instant::now();
        let outcome = check().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        report.push((name, outcome, start.elapsed().as_secs()));
    }

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

/// What a feature brings can't be linked to without it. The last one stays in target/doc.
fn documentation() -> Result<Outcome> {
    for features in ["--no-default-features", "--all-features"] {
        let mut doc = cargo(["doc", "--no-deps", "--package", PACKAGE, features]);
        if !run::run(doc.env("RUSTDOCFLAGS", "-D warnings"))?.success() {
            return Ok(Outcome::Failed(format!("cargo doc {features}, see above")));
        }
    }
    Ok(Outcome::Passed)
}

/// The sets of features that are compiled: each engine alone, and each feature without each other one. All together are part of
/// the lints.
const SETS: [&str; 11] = [
    "",
    "bb8",
    "postgres",
    "mysql",
    "sqlite",
    "sqlite,r2d2",
    "async-postgres,bb8",
    "async-mysql,deadpool",
    "async-sqlite",
    "async-sqlite,deadpool",
    "postgres,mysql,r2d2,async-postgres,async-mysql",
];

/// The sets compile without a warning, each by itself.
fn combinations(features: &Value) -> Result<Outcome> {
    let mut failed = Vec::new();
    let names = || features.as_object().into_iter().flat_map(|it| it.keys());
    let public = || names().filter(|name| !name.starts_with('_') && *name != "default");
    for (one, other) in public().flat_map(|one| public().map(move |other| (one, other))) {
        let has = |set: &str, feature: &str| set.split(',').any(|name| name == feature);
        if one != other && !SETS.iter().any(|set| has(set, one) && !has(set, other)) {
            failed.push(format!("no set has `{one}` without `{other}`"));
        }
    }
    for chosen in SETS {
        println!("xtask: features: {chosen:?}");
        let mut clippy = cargo(["clippy", "--quiet", "--lib", "--package", PACKAGE]);
        if !run::run(clippy.args(["--features", chosen]).args(LINTS))?.success() {
            failed.push(format!("[{chosen}]"));
        }
    }
    Ok(Outcome::of(&failed))
}

/// Compiles with the Rust version that Cargo.toml promises.
fn oldest_rust(package: &Value) -> Result<Outcome> {
    let version = package["rust_version"]
        .as_str()
        .context("no rust-version")?;
    let installed = match programs::find("rustup") {
        Some(rustup) => run::output(Command::new(rustup).args(["toolchain", "list"]))?,
        None => String::new(),
    };
    let toolchains = installed.lines().filter_map(|line| words(line).next());
    let is_it = |name: &&str| {
        let rest = name.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    let Some(toolchain) = toolchains.into_iter().find(is_it) else {
        let reason = format!(
            "Rust {version} is not installed (rustup toolchain install {version}); clippy's incompatible_msrv ran"
        );
        return Ok(Outcome::Skipped(reason));
    };
    let mut check = Command::new("rustup");
    check.args(["run", toolchain, "cargo", "check", "--package", PACKAGE]);
    passes(check.args(["--lib", "--all-features"]).current_dir(root()))
}

/// Compares the API with that of the last release.
fn semver() -> Result<Outcome> {
    let mut git = Command::new("git");
    git.args(words("tag --list v* --sort=-version:refname"));
    let tags = run::output(git.current_dir(root())).unwrap_or_default();
    let Some(release) = tags.lines().next() else {
        return Ok(Outcome::Skipped(
            "there is no release (a tag v*) to compare with".into(),
        ));
    };
    let mut check = cargo(["semver-checks", "--package", PACKAGE]);
    with_tool(
        "cargo-semver-checks",
        check.args(["--baseline-rev", release]),
    )
}

fn deny(checks: &str) -> Command {
    let mut command = cargo(["deny", "--all-features", "check"]);
    command.args(words(checks));
    command
}

/// The list of vulnerabilities comes from the network, unlike anything else here.
fn vulnerabilities() -> Result<Outcome> {
    let mut deny = deny("advisories");
    if programs::find("cargo-deny").is_none() {
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
    if programs::find(program).is_none() {
        return Ok(Outcome::Skipped(format!(
            "{program} is not installed (cargo install --locked {program})"
        )));
    }
    passes(command)
}
