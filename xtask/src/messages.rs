//! `cargo xtask messages`: whether errors are recognised in every language of the servers on which tests run.

use std::env::join_paths;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::{ALL, cargo};
use crate::programs::entries;
use crate::{release, run};

/// The tests, which the library ignores unless they are named.
const TESTS: &str = "error::classify::server_messages";
/// The variables that name the directories of languages.
const MYSQL_MESSAGES: &str = "DIESEL_LOCKS_MYSQL_MESSAGES";
const POSTGRES_MESSAGES: &str = "DIESEL_LOCKS_POSTGRES_MESSAGES";

/// Compares the messages of the library with the files of the machine's servers and of every version that can be unpacked.
pub(crate) fn messages() -> Result<u8> {
    let share = Path::new("/usr/share");
    let mut mysql = vec![mysql_languages(share)?];
    let mut postgres = vec![postgres_languages(share)?];
    for release in release::SERVERS {
        release.fetch()?;
        let share = release.usr().join("share");
        if release.product() == "postgres" {
            postgres.push(postgres_languages(&share)?);
        } else {
            mysql.push(mysql_languages(&share)?);
        }
    }
    let mut tests = cargo(["test", "--lib"]);
    tests.args(ALL).args(["--", "--include-ignored", TESTS]);
    tests.env(MYSQL_MESSAGES, join_paths(mysql)?);
    tests.env(POSTGRES_MESSAGES, join_paths(postgres)?);
    Ok(run::code(run::run(&mut tests)?))
}

fn mysql_languages(share: &Path) -> Result<PathBuf> {
    languages(share, ["mariadb", "mysql"], "english/errmsg.sys")
}

fn postgres_languages(share: &Path) -> Result<PathBuf> {
    // Ubuntu moves translations into packages and a directory of their own.
    languages(
        share,
        ["locale", "locale-langpack"],
        "de/LC_MESSAGES/postgres-",
    )
}

/// The one of these directories that has a directory for each language, with files whose paths begin so.
fn languages(share: &Path, names: [&str; 2], file: &str) -> Result<PathBuf> {
    let has_file = |directory: &PathBuf| {
        let file = directory.join(file).into_os_string();
        let beginning = file.as_encoded_bytes();
        let parent = Path::new(&file).parent().unwrap_or(directory);
        entries(parent).any(|it| it.as_os_str().as_encoded_bytes().starts_with(beginning))
    };
    let found = names
        .map(|name| share.join(name))
        .into_iter()
        .find(has_file);
    found.with_context(|| {
        format!(
            "no messages in {} ({file}): install the server by `cargo xtask setup`. If it is installed, its translations were \
             left out, as small container images do: remove the lines with `path-exclude` from /etc/dpkg/dpkg.cfg.d, and run \
             `apt-get install --reinstall` for the server's package",
            share.display()
        )
    })
}
