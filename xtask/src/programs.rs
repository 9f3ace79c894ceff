//! Finding programs, and what comes with them, on this machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// Where Debian keeps programs that only root is expected to run, which is not in the `PATH` of others.
const MORE_DIRECTORIES: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(MORE_DIRECTORIES.map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// What the program says about its version, in one line.
pub(crate) fn version(program: &Path) -> Option<String> {
    let printed = run::output(Command::new(program).arg("--version")).ok()?;
    printed.lines().next().map(|line| line.trim().to_owned())
}

/// What is in a directory; nothing if it can't be read.
pub(crate) fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// The directory of the newest PostgreSQL server's programs.
pub(crate) fn postgres() -> Result<PathBuf> {
    let has_postgres = |directory: &PathBuf| {
        let mut names = ["initdb", "postgres", "psql"].iter();
        names.all(|name| directory.join(name).is_file())
    };
    // `15` for Debian's and Ubuntu's `/usr/lib/postgresql/15`, and for `/usr/pgsql-15` of Red Hat's packages.
    let major = |directory: &Path| -> Option<u32> {
        let name = directory.file_name()?.to_str()?;
        name.strip_prefix("pgsql-").unwrap_or(name).parse().ok()
    };
    entries("/usr/lib/postgresql")
        .chain(entries("/usr"))
        .filter_map(|directory| Some((major(&directory)?, directory.join("bin"))))
        .filter(|(_, directory)| has_postgres(directory))
        .max()
        .map(|(_, directory)| directory)
        .or_else(|| Some(find("initdb")?.parent()?.to_owned()).filter(has_postgres))
        .context("there is no PostgreSQL server")
}

pub(crate) struct MysqlServer {
    pub(crate) server: PathBuf,
    /// What makes MariaDB's data directory; MySQL does it by itself.
    pub(crate) install: Option<PathBuf>,
    /// Where its files are, when that is not where they were made for.
    pub(crate) base: Option<PathBuf>,
}

impl MysqlServer {
    pub(crate) fn is_mariadb(&self) -> bool {
        self.install.is_some()
    }
}

/// The machine's MariaDB, or else its MySQL.
pub(crate) fn mysql() -> Result<MysqlServer> {
    let install = find("mariadb-install-db");
    let server = find(install.as_ref().map_or("mysqld", |_| "mariadbd"));
    Ok(MysqlServer {
        server: server.context("there is no MariaDB or MySQL server")?,
        install,
        base: None,
    })
}

/// Whether there is a browser with its driver: in the `PATH`, or in the variables that the tests of the program `web`
/// read.
pub(crate) fn has_browser() -> bool {
    let has = |variable: &str, names: &[&str]| {
        env::var_os(variable).is_some() || names.iter().any(|name| find(name).is_some())
    };
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    has("CHROMIUM", &browsers) && has("CHROMEDRIVER", &["chromedriver"])
}

/// The library that gives a program another time.
///
/// The one for programs with threads: with the other one, a thread that looks at the clock while another one reads the
/// file sees a time that is off by a second.
pub(crate) fn faketime() -> Option<PathBuf> {
    // Debian's directory is named after the machine, Red Hat's is not.
    entries("/usr/lib")
        .chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from))
        .map(|parent| parent.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}
