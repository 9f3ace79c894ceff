//! Asynchronous connections need no client library of the database.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::outcome::Outcome;
use crate::cargo::{PACKAGE, cargo};
use crate::run;

/// The features that need no client library.
const FEATURES: &str = "async-postgres,async-mysql,bb8,deadpool";
/// A program with these features.
const PROGRAM: &str = "async-only";
/// The packages that link client libraries.
const PACKAGES: [&str; 3] = ["libsqlite3-sys", "mysqlclient-sys", "pq-sys"];
/// Functions without which a client library can't be used. A program that links it, as a shared library or not, has their
/// names in its file.
const FUNCTIONS: [&str; 3] = ["PQconnectdb", "mysql_real_connect", "sqlite3_open_v2"];

/// Looks for client libraries among the dependencies of the library, and in a program.
pub(crate) fn check() -> Result<Outcome> {
    let mut problems = Vec::new();
    for package in dependencies()? {
        if PACKAGES.contains(&package.as_str()) {
            problems.push(format!("{PACKAGE} depends on {package} with {FEATURES}"));
        }
    }
    let file = fs::read(build()?).with_context(|| format!("the file of {PROGRAM}"))?;
    for function in functions(&file) {
        problems.push(format!("the program {PROGRAM} links {function}"));
    }
    Ok(if problems.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(problems.join("; "))
    })
}

/// The names of all packages on which the library depends.
fn dependencies() -> Result<Vec<String>> {
    let tree = run::output(
        cargo(["tree", "--package", PACKAGE, "--edges", "normal"]).args([
            "--no-default-features",
            "--features",
            FEATURES,
            "--target",
            "all",
            "--prefix",
            "none",
        ]),
    )?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

/// Builds the program, and returns its path. Alone: other packages of the workspace would add their features.
fn build() -> Result<String> {
    let messages = run::output(&mut cargo([
        "build",
        "--package",
        PROGRAM,
        "--message-format",
        "json-render-diagnostics",
    ]))?;
    let messages = messages.lines().map(serde_json::from_str);
    let messages: Vec<Value> = messages.collect::<Result<_, _>>()?;
    let mut programs = messages.iter().filter_map(|one| one["executable"].as_str());
    let program = programs.find(|path| Path::new(path).ends_with(PROGRAM));
    Ok(program.context("cargo names no program")?.to_owned())
}

/// The functions of client libraries that the program's file names. A name ends with a zero, and may be the end of another.
fn functions(file: &[u8]) -> Vec<&'static str> {
    let mut found: Vec<_> = file
        .split(|byte| *byte == 0)
        .filter_map(|text| {
            let mut functions = FUNCTIONS.into_iter();
            functions.find(|function| text.ends_with(function.as_bytes()))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn functions_of_client_libraries_are_found() {
        let file = b"\x7fELF\0main\0_PQconnectdb\0mysql_real_connect_nonblocking\0PQconnectdb\0";
        assert_eq!(functions(file), ["PQconnectdb"]);
        assert_eq!(functions(b"\x7fELF\0main\0"), [""; 0]);
    }
}
