//! `cargo xtask messages`: whether errors are recognised in every language of the servers on which tests run.

use std::env::join_paths;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::{ALL, cargo};
use crate::programs::entries;
use crate::release;
use crate::run;

/// The tests, which the library ignores unless they are named.
const TESTS: &str = "error::classify::server_messages";

/// Compares the messages of the library with the files of the machine's servers and of every version that can be unpacked.
pub(crate) fn messages() -> Result<u8> {
    let (mut mysql, mut postgres) = (Vec::new(), Vec::new());
    let machine = || PathBuf::from("/usr/share");
    let mut servers = vec![("mysql", machine()), ("postgres", machine())];
    for release in release::SERVERS {
        release.fetch()?;
        servers.push((release.product(), release.usr().join("share")));
    }
    for (product, share) in servers {
        if product == "postgres" {
            // Ubuntu moves translations into packages and a directory of their own.
            let names = ["locale", "locale-langpack"];
            postgres.push(languages(&share, names, "de/LC_MESSAGES/postgres-")?);
        } else {
            let names = ["mariadb", "mysql"];
            mysql.push(languages(&share, names, "english/errmsg.sys")?);
        }
    }
    let mut tests = cargo("test --lib");
    tests.args(ALL).args(["--", "--include-ignored", TESTS]);
    tests.env("DIESEL_LOCKS_MYSQL_MESSAGES", join_paths(mysql)?);
    tests.env("DIESEL_LOCKS_POSTGRES_MESSAGES", join_paths(postgres)?);
    Ok(run::code(run::run(&mut tests)?))
}

/// The one of these directories that has a directory for each language, with files whose paths begin so.
fn languages(share: &Path, names: [&str; 2], file: &str) -> Result<PathBuf> {
    let has_file = |directory: &PathBuf| {
        let file = directory.join(file).into_os_string();
        let beginning = file.as_encoded_bytes();
        let parent = Path::new(&file).parent().unwrap_or(directory);
        entries(parent).any(|it| it.as_os_str().as_encoded_bytes().starts_with(beginning))
    };
    let mut directories = names.iter().map(|name| share.join(name));
    directories.find(has_file).with_context(|| {
        format!(
            "no messages in {} ({file}): install the server by `cargo xtask setup`. If it is installed, its translations were \
             left out, as small container images do: remove the lines with `path-exclude` from /etc/dpkg/dpkg.cfg.d, and run \
             `apt-get install --reinstall` for the server's package",
            share.display()
        )
    })
}
