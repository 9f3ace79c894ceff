//! `cargo xtask messages`: whether errors are recognised in every language of the servers on which tests run.

use std::env::join_paths;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::cargo::{ALL, cargo};
use crate::programs::entries;
use crate::release::Release;
use crate::run;
use crate::servers::Engine;

/// The tests, which the library ignores unless they are named.
const TESTS: &str = "error::classify::server_messages";
/// The variables that name the directories of languages.
const MYSQL_MESSAGES: &str = "DIESEL_LOCKS_MYSQL_MESSAGES";
const POSTGRES_MESSAGES: &str = "DIESEL_LOCKS_POSTGRES_MESSAGES";
/// Where the machine's own servers have theirs.
const SHARE: &str = "/usr/share";

/// Compares the messages of the library with the files of the machine's servers and of every version that can be unpacked.
pub(crate) fn messages() -> Result<u8> {
    let mut mysql = vec![mysql_languages(Path::new(SHARE))?];
    let mut postgres = vec![postgres_languages(Path::new(SHARE))?];
    for release in Release::value_variants() {
        release.unpacked().fetch()?;
        let share = release.usr().join("share");
        match release.engine() {
            Engine::Mysql => mysql.push(mysql_languages(&share)?),
            Engine::Postgres => postgres.push(postgres_languages(&share)?),
            Engine::Sqlite => {}
        }
    }
    let mut tests = cargo(["test", "--lib"]);
    tests
        .args(ALL)
        .args(["--", "--include-ignored", TESTS])
        .env(MYSQL_MESSAGES, join_paths(mysql)?)
        .env(POSTGRES_MESSAGES, join_paths(postgres)?);
    Ok(u8::from(!run::run(&mut tests)?.success()))
}

/// The directory with a directory for each language of MySQL or MariaDB.
fn mysql_languages(share: &Path) -> Result<PathBuf> {
    ["mariadb", "mysql"]
        .map(|name| share.join(name))
        .into_iter()
        .find(|directory| directory.join("english/errmsg.sys").is_file())
        .with_context(|| missing(share, "a MariaDB or MySQL server", "english/errmsg.sys"))
}

/// The directory with a directory for each language of PostgreSQL.
fn postgres_languages(share: &Path) -> Result<PathBuf> {
    // Ubuntu moves translations into packages and a directory of their own.
    let has_messages = |directory: &PathBuf| {
        entries(directory.join("de/LC_MESSAGES")).any(|file| {
            let name = file.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("postgres-")
        })
    };
    ["locale", "locale-langpack"]
        .map(|name| share.join(name))
        .into_iter()
        .find(has_messages)
        .with_context(|| missing(share, "PostgreSQL", "de/LC_MESSAGES/postgres-<version>.mo"))
}

fn missing(share: &Path, server: &str, file: &str) -> String {
    format!(
        "no messages of {server} in {} ({file}): install the server by `cargo xtask setup`. If it is installed, its translations were \
         left out, as small container images do: remove the lines with `path-exclude` from /etc/dpkg/dpkg.cfg.d, and run \
         `apt-get install --reinstall` for the server's package",
        share.display()
    )
}
