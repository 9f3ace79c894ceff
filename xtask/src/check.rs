//! `cargo xtask check`: everything that can be said about the code without a database.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

mod modules;

use crate::cargo::{self, PACKAGE, cargo, root, target};
use crate::run::{self, words};
use crate::servers::Plan;
use crate::{programs, setup};

/// How a check ended that did not fail.
enum Outcome {
    Passed,
    /// It was not made, for this reason.
    Skipped(String),
}

use Outcome::{Passed, Skipped};

/// Lints at their strictest, for every call alike: clippy does what `cargo check` does, so that dependencies are compiled
/// once for each set of features, and what is passed behind `--` does not reach them.
const LINTS: [&str; 5] = ["--", "-D", "warnings", "-D", "clippy::incompatible_msrv"];

/// Runs all checks, also after one has failed, and reports them at the end.
pub(crate) fn check() -> Result<u8> {
    setup::prepare(Plan::default())?;
    let package = cargo::package()?;
    let checks: [(&str, &dyn Fn() -> Result<Outcome>); 14] = [
        ("formatting", &|| succeeds(&mut cargo("fmt --all --check"))),
        ("lints", &|| {
            succeeds(cargo("clippy --workspace --all-targets --all-features").args(LINTS))
        }),
        // With the features of the README's first command.
        ("lints of the programs on SQLite", &|| {
            succeeds(cargo("clippy --package ingest --package systems").args(LINTS))
        }),
        // Not one of all targets, because `cargo test` would run it without servers.
        ("lints of the tests of clusters", &|| {
            succeeds(cargo("clippy --workspace --test clusters --all-features").args(LINTS))
        }),
        ("documentation", &documentation),
        ("combinations of features", &|| {
            combinations(&package["features"])
        }),
        (
            "asynchronous connections without client libraries",
            &client_libraries,
        ),
        ("modules", &|| none_of(&modules::problems()?)),
        ("documents", &documents),
        ("package", &|| compile_package(&package)),
        ("oldest supported Rust", &|| oldest_rust(&package)),
        ("licences and sources (cargo deny)", &|| {
            with_tool(
                "cargo-deny",
                "deny --all-features check licenses bans sources",
            )
        }),
        ("known vulnerabilities (cargo deny)", &vulnerabilities),
        ("compatible API (cargo semver-checks)", &semver),
    ];
    let mut report = Vec::new();
    for (name, check) in checks {
        println!("xtask: {name}");
        let start = Instant::now();
        report.push((name, check(), start.elapsed().as_secs()));
    }

    println!();
    let mut code = 0;
    for (name, outcome, seconds) in report {
        match outcome {
            Ok(Passed) => println!("xtask: passed: {name} ({seconds} s)"),
            Ok(Skipped(reason)) => println!("xtask: NOT MADE: {name}: {reason}"),
            Err(error) => {
                println!("xtask: FAILED: {name}: {error:#}");
                code = 1;
            }
        }
    }
    Ok(code)
}

fn succeeds(command: &mut Command) -> Result<Outcome> {
    run::succeed(command)?;
    Ok(Passed)
}

/// A check that looks for problems.
fn none_of(problems: &[String]) -> Result<Outcome> {
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(Passed)
}

/// What a feature brings can't be linked to without it. The last one stays in target/doc.
fn documentation() -> Result<Outcome> {
    for features in ["--no-default-features", "--all-features"] {
        let mut doc = cargo(&format!("doc --no-deps --package {PACKAGE} {features}"));
        run::succeed(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(Passed)
}

/// The sets of features that are compiled: each engine alone, and each feature without each other one. All together are part of
/// the lints.
const SETS: [&str; 12] = [
    "",
    "bb8",
    "cron",
    "postgres",
    "mysql,testing",
    "sqlite,metrics",
    "sqlite,r2d2,testing",
    "async-postgres,bb8,testing",
    "async-mysql,deadpool",
    "async-sqlite",
    "async-sqlite,deadpool,cron,metrics",
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
        let mut clippy = cargo(&format!("clippy --quiet --lib --package {PACKAGE}"));
        if !run::run(clippy.args(["--features", chosen]).args(LINTS))?.success() {
            failed.push(format!("[{chosen}]"));
        }
    }
    none_of(&failed)
}

/// Asynchronous connections need no client library of the database: the crate with these features does not depend on the packages
/// that link them. A package of Rust code alone links none.
fn client_libraries() -> Result<Outcome> {
    const FEATURES: &str = "async-postgres,async-mysql,bb8,deadpool";
    // Of the crate alone: other packages of the workspace would add their features.
    let tree = run::output(&mut cargo(&format!(
        "tree --package {PACKAGE} --target all --no-default-features --features {FEATURES} \
         --edges normal,build --prefix none"
    )))?;
    for library in ["libsqlite3-sys", "mysqlclient-sys", "pq-sys"] {
        let is_it = |line: &str| words(line).next() == Some(library);
        let found = tree.lines().any(is_it);
        ensure!(!found, "{PACKAGE} with {FEATURES} depends on {library}");
    }
    Ok(Passed)
}

/// Of all documents together.
const DOCUMENT_WORDS: usize = 32_065;

/// The documents name files and tests that exist, and are short.
fn documents() -> Result<Outcome> {
    let mut git = run::command("git ls-files --cached --others --exclude-standard");
    let listed = run::output(git.current_dir(root()))?;
    let with = |extension| move |file: &&str| file.ends_with(extension);
    // A file that was deleted is listed until the commit.
    let is_there = |file: &&str| root().join(file).exists();
    let read = |file: &str| fs::read_to_string(root().join(file)).context(file.to_owned());
    let sources = listed.lines().filter(with(".rs")).filter(is_there);
    let sources = sources.map(read).collect::<Result<String>>()?;
    let mut missing = Vec::new();
    let mut count = 0;
    for document in listed.lines().filter(with(".md")).filter(is_there) {
        let text = read(document)?;
        count += modules::count_words(text.lines());
        let parts: Vec<&str> = text.split('`').collect();
        for pair in parts.chunks_exact(2) {
            let (before, name) = (pair[0].trim_end(), pair[1]);
            let exists = if name.contains(char::is_whitespace) {
                true
            } else if name.strip_suffix(".rs").is_some() {
                let end = format!("/{name}");
                let mut files = listed.lines();
                files.any(|file| file == name || file.ends_with(&end))
            } else if before.ends_with("test") || before.ends_with("tests") {
                let last = name.rsplit("::").next().unwrap_or(name);
                sources.contains(&format!("fn {}", last.trim_end_matches("..")))
            } else {
                true
            };
            if !exists {
                missing.push(format!("{document}: there is no `{name}`"));
            }
        }
    }
    println!("xtask: words of the documents: {count}, at most {DOCUMENT_WORDS}");
    if count > DOCUMENT_WORDS {
        missing.push(format!("{count} words, more than {DOCUMENT_WORDS}"));
    }
    none_of(&missing)
}

/// Makes the package as it would be published, and compiles it by itself: it has all files that the library includes.
fn compile_package(package: &Value) -> Result<Outcome> {
    let package_it = || {
        cargo(&format!(
            "package --allow-dirty --no-verify --package {PACKAGE}"
        ))
    };
    if !run::run(&mut package_it())?.success() {
        println!("xtask: once more without the network, should that be the reason");
        run::succeed(package_it().arg("--offline"))?;
    }
    let target = target()?;
    let version = package["version"].as_str().context("no version")?;
    let name = format!("{PACKAGE}-{version}");
    let file = target.join("package").join(format!("{name}.crate"));
    // Not in the workspace's directory, where cargo would take it for part of the workspace.
    let directory = tempfile::tempdir()?;
    let mut tar = run::command("tar -xzf");
    run::output(tar.arg(&file).arg("-C").arg(directory.path()))?;
    // Without features, as cargo would build it to verify it, and with all. The workspace's target directory has the dependencies.
    for features in ["--no-default-features", "--all-features"] {
        let mut check = cargo(&format!("check --lib {features}"));
        check.current_dir(directory.path().join(&name));
        run::succeed(check.env("CARGO_TARGET_DIR", &target))?;
    }
    Ok(Passed)
}

fn oldest_rust(package: &Value) -> Result<Outcome> {
    let version = package["rust_version"].as_str();
    let version = version.context("no rust-version")?;
    let rustup = |command| run::command(&format!("rustup run {version} {command}"));
    if run::output(&mut rustup("cargo --version")).is_err() {
        return Ok(Skipped(format!(
            "Rust {version} is not installed (rustup toolchain install {version}); clippy's incompatible_msrv ran"
        )));
    }
    let mut check = rustup(&format!(
        "cargo check --lib --all-features --package {PACKAGE}"
    ));
    succeeds(check.current_dir(root()))
}

fn semver() -> Result<Outcome> {
    let mut git = run::command("git tag --list v* --sort=-version:refname");
    let tags = run::output(git.current_dir(root())).unwrap_or_default();
    let Some(release) = tags.lines().next() else {
        let reason = "there is no release (a tag v*) to compare with";
        return Ok(Skipped(reason.to_owned()));
    };
    let check = format!("semver-checks --package {PACKAGE} --baseline-rev {release}");
    with_tool("cargo-semver-checks", &check)
}

/// The list of vulnerabilities comes from the network, unlike anything else here.
fn vulnerabilities() -> Result<Outcome> {
    const CHECK: &str = "deny --all-features check advisories";
    if programs::find("cargo-deny").is_some()
        && run::errors(&mut cargo(CHECK))?.contains("failed to fetch advisory database")
    {
        return Ok(Skipped("their list cannot be fetched".to_owned()));
    }
    with_tool("cargo-deny", CHECK)
}

fn with_tool(program: &str, arguments: &str) -> Result<Outcome> {
    if programs::find(program).is_none() {
        return Ok(Skipped(format!(
            "{program} is not installed (cargo install --locked {program})"
        )));
    }
    succeeds(&mut cargo(arguments))
}
