//! Asynchronous connections need no client library of the database.

use anyhow::Result;

use super::outcome::Outcome;
use crate::cargo::{PACKAGE, cargo};
use crate::run;

/// The features of an application with asynchronous connections only.
const FEATURES: &str = "async-postgres,async-mysql,bb8,deadpool";
/// The packages that link client libraries. A package of Rust code alone links none.
const PACKAGES: [&str; 3] = ["libsqlite3-sys", "mysqlclient-sys", "pq-sys"];

/// Looks for client libraries among the dependencies of the crate with these features. They are those that it has alone: other
/// packages of the workspace would add their features.
pub(crate) fn check() -> Result<Outcome> {
    let mut tree = cargo(["tree", "--package", PACKAGE, "--target", "all"]);
    tree.args(["--no-default-features", "--features", FEATURES]);
    let tree = run::output(tree.args(["--edges", "normal,build", "--prefix", "none"]))?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let found: Vec<_> = names.filter(|name| PACKAGES.contains(name)).collect();
    Ok(if found.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(format!(
            "{PACKAGE} with {FEATURES} depends on {}",
            found.join(", ")
        ))
    })
}
