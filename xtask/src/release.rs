//! Programs of other versions than the machine's, from Debian's packages: unpacked into a cache, not installed.
//!
//! What is unpacked brings its own C library, and is started by that library's loader: so it runs on whatever the
//! machine is, as any user, and leaves the machine's packages alone.

use std::env;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::unistd::geteuid;

use crate::programs::{self, MysqlServer, entries};
use crate::run::{self, words};
use crate::servers::Engine;

/// A version of a server.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Release {
    #[value(name = "mariadb-11.8")]
    Mariadb11,
    #[value(name = "mysql-9")]
    Mysql9,
    #[value(name = "postgres-17")]
    Postgres17,
    #[value(name = "postgres-18")]
    Postgres18,
}

const MARIADB_11: Unpacked = Unpacked {
    name: "mariadb-11.8",
    suite: "trixie",
    packages: "mariadb-server-core mariadb-client-core",
    bin: "usr/sbin",
    programs: "mariadbd ../bin/my_print_defaults ../bin/resolveip",
};
const MYSQL_9: Unpacked = Unpacked {
    name: "mysql-9",
    suite: "sid",
    packages: "mysql-server-core",
    bin: "usr/sbin",
    programs: "mysqld",
};
const POSTGRES_17: Unpacked = Unpacked {
    name: "postgres-17",
    suite: "trixie",
    packages: "postgresql-17",
    bin: "usr/lib/postgresql/17/bin",
    programs: "initdb postgres psql",
};
const POSTGRES_18: Unpacked = Unpacked {
    name: "postgres-18",
    suite: "sid",
    packages: "postgresql-18",
    bin: "usr/lib/postgresql/18/bin",
    programs: "initdb postgres psql",
};
/// Of a release, so that it changes little.
const PGBOUNCER: Unpacked = Unpacked {
    name: "pgbouncer",
    suite: "trixie",
    packages: "pgbouncer",
    bin: "usr/sbin",
    programs: "pgbouncer",
};

impl Release {
    pub(crate) fn unpacked(self) -> &'static Unpacked {
        match self {
            Self::Mariadb11 => &MARIADB_11,
            Self::Mysql9 => &MYSQL_9,
            Self::Postgres17 => &POSTGRES_17,
            Self::Postgres18 => &POSTGRES_18,
        }
    }

    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Mariadb11 | Self::Mysql9 => Engine::Mysql,
            Self::Postgres17 | Self::Postgres18 => Engine::Postgres,
        }
    }

    /// MySQL is tested beside MariaDB, not in its place.
    pub(crate) fn is_mysql(self) -> bool {
        self == Self::Mysql9
    }

    /// The image to use where there are no packages: `mysql:9` for `mysql-9`.
    pub(crate) fn image(self) -> String {
        self.unpacked().name.replacen('-', ":", 1)
    }

    /// Where a server of this version is said to come from.
    pub(crate) fn origin(self) -> String {
        format!("private, of Debian's {}", self.unpacked().suite)
    }

    /// The directory of its programs.
    pub(crate) fn bin(self) -> PathBuf {
        self.unpacked().bin()
    }

    /// A MariaDB or MySQL.
    pub(crate) fn mysql_server(self) -> MysqlServer {
        let usr = self.usr();
        let is_mysql = self.is_mysql();
        MysqlServer {
            server: self
                .bin()
                .join(if is_mysql { "mysqld" } else { "mariadbd" }),
            install: (!is_mysql).then(|| usr.join("bin/mariadb-install-db")),
            base: Some(usr),
        }
    }

    /// The directory that stands for the machine's `/usr`.
    pub(crate) fn usr(self) -> PathBuf {
        self.unpacked().directory().join("usr")
    }
}

/// What to unpack, and from where.
pub(crate) struct Unpacked {
    /// That of its directory in the cache.
    name: &'static str,
    /// The suite of Debian that has it.
    suite: &'static str,
    packages: &'static str,
    /// The directory of its programs, in what is unpacked.
    bin: &'static str,
    /// The programs that are run.
    programs: &'static str,
}

/// Where a Debian system has the keys of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where packages come from when the machine's own sources are not Debian's.
const MIRROR: &str = "http://deb.debian.org/debian";
/// Directories of packages that no program needs.
const NOT_NEEDED: [&str; 3] = ["usr/share/doc", "usr/share/man", "usr/share/perl"];

impl Unpacked {
    fn directory(&self) -> PathBuf {
        cache().join(self.name)
    }

    /// The directory of its programs.
    fn bin(&self) -> PathBuf {
        self.directory().join(self.bin)
    }

    /// Whether packages of it are available.
    pub(crate) fn is_available(&self) -> bool {
        self.directory().exists()
            || (programs::find("apt-get").is_some() && Path::new(KEYS).exists())
    }

    /// Downloads and unpacks it, if that was not done before.
    pub(crate) fn fetch(&self) -> Result<()> {
        let directory = self.directory();
        if directory.exists() {
            return Ok(());
        }
        println!(
            "xtask: unpacking {} from Debian's {} in {}, which stays there; nothing is installed",
            self.packages,
            self.suite,
            directory.display()
        );
        let parent = cache();
        fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
        // Complete or not there: another run may want it at the same time, and a signal may end this one.
        let work = tempfile::Builder::new()
            .prefix(".unpacking-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&parent)?;
        let unpacked = work.path().join("unpacked");
        for package in self.download(work.path())? {
            let mut extract = Command::new("dpkg-deb");
            run::output(extract.arg("--extract").arg(package).arg(&unpacked))?;
        }
        for directory in NOT_NEEDED {
            let _ = fs::remove_dir_all(unpacked.join(directory));
        }
        self.start_by_own_loader(&unpacked)?;
        match fs::rename(&unpacked, &directory) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
                Err(error).with_context(|| directory.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Downloads its packages and all that they depend on, as for a machine that has none, into `work`.
    fn download(&self, work: &Path) -> Result<Vec<PathBuf>> {
        let sources = format!("deb [signed-by={KEYS}] {} {} main\n", mirror(), self.suite);
        fs::write(work.join("sources.list"), sources)?;
        fs::write(work.join("status"), "")?;
        let archives = work.join("cache/archives");
        fs::create_dir_all(archives.join("partial"))?;
        fs::create_dir_all(work.join("state/lists/partial"))?;
        let apt = |arguments: &str| {
            let mut apt = Command::new("apt-get");
            let work = work.display();
            for own in [
                format!("Dir::Etc::SourceList={work}/sources.list"),
                format!("Dir::State={work}/state"),
                format!("Dir::State::status={work}/status"),
                format!("Dir::Cache={work}/cache"),
            ] {
                apt.args(["-o", &own]);
            }
            apt.args(words(APT_OPTIONS));
            run::output(apt.args(words(arguments)))
        };
        apt("update")?;
        let packages = self.packages;
        apt(&format!(
            "install --yes --download-only --no-install-recommends {packages}"
        ))?;
        let is_package = |path: &PathBuf| path.extension().is_some_and(|it| it == "deb");
        let packages: Vec<PathBuf> = entries(&archives).filter(is_package).collect();
        if packages.is_empty() {
            bail!("apt-get has downloaded nothing for {}", self.name);
        }
        Ok(packages)
    }

    /// Puts a script in the place of each program, which starts it with the C library that it was unpacked with.
    fn start_by_own_loader(&self, unpacked: &Path) -> Result<()> {
        let loader = loader(unpacked)?;
        let loader = self.directory().join(loader.strip_prefix(unpacked)?);
        let libraries = loader.parent().context("a loader has a directory")?;
        for name in words(self.programs) {
            let program = fs::canonicalize(unpacked.join(self.bin).join(name))
                .with_context(|| format!("{} has no {name}", self.name))?;
            let moved = program.with_extension("unpacked");
            fs::rename(&program, &moved)?;
            let moved = self.directory().join(moved.strip_prefix(unpacked)?);
            let script = format!(
                "#!/bin/sh\nexec '{}' --argv0 \"$0\" --library-path '{}' '{}' \"$@\"\n",
                loader.display(),
                libraries.display(),
                moved.display()
            );
            fs::write(&program, script)?;
            fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}

/// Nothing of the machine's but how it reaches the network. A mirror that was not renewed lately will do for tests.
const APT_OPTIONS: &str = "-qq -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
    -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User= -o Acquire::Check-Valid-Until=false \
    -o Acquire::Languages=none -o Acquire::Retries=3";

/// Debian's mirror in the machine's own sources.
fn mirror() -> String {
    let mut query = Command::new("apt-get");
    query.args(["indextargets", "--format", "$(REPO_URI)"]);
    query.args(["Created-By: Packages", "Label: Debian"]);
    let printed = run::output(&mut query).unwrap_or_default();
    printed.lines().next().unwrap_or(MIRROR).to_owned()
}

/// The program that starts programs, and knows where libraries are.
fn loader(unpacked: &Path) -> Result<PathBuf> {
    let libraries = unpacked.join("usr/lib");
    let is_loader = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("ld-linux") && name.contains(".so."))
    };
    let mut files = entries(&libraries).flat_map(entries);
    files
        .find(is_loader)
        .with_context(|| format!("there is no loader in {}", libraries.display()))
}

/// Where what is unpacked stays: root's servers run as other users, who can't look into root's home.
fn cache() -> PathBuf {
    if geteuid().is_root() {
        return PathBuf::from("/var/cache/diesel-locks");
    }
    let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map_or_else(env::temp_dir, PathBuf::from);
    own.unwrap_or_else(|| home().join(".cache"))
        .join("diesel-locks")
}

/// The variable with its path, for the tests that need it.
pub(crate) const PGBOUNCER_VARIABLE: &str = "DIESEL_LOCKS_TEST_PGBOUNCER";

/// The first that tells the prepared statements of its clients apart.
const OLDEST_PGBOUNCER: (u32, u32) = (1, 21);

/// The PgBouncer of the variable, the machine's own, or one of Debian's packages, which is unpacked for it.
pub(crate) fn pgbouncer() -> Option<PathBuf> {
    if let Some(given) = env::var_os(PGBOUNCER_VARIABLE) {
        return Some(given.into());
    }
    let is_new = |program: &PathBuf| {
        programs::version(program)
            .is_some_and(|it| pgbouncer_version(&it) >= Some(OLDEST_PGBOUNCER))
    };
    if let Some(installed) = programs::find("pgbouncer").filter(is_new) {
        return Some(installed);
    }
    let reason = if !PGBOUNCER.is_available() {
        "this machine has no apt-get, or not the package debian-archive-keyring".to_owned()
    } else if let Err(error) = PGBOUNCER.fetch() {
        format!("{error:#}")
    } else {
        return Some(PGBOUNCER.bin().join("pgbouncer"));
    };
    println!("xtask: no PgBouncer 1.21 or newer, without which some tests will fail: {reason}");
    println!("xtask: (install it, or set {PGBOUNCER_VARIABLE} to its path)");
    None
}

/// `(1, 18)` for `PgBouncer 1.18.0`.
fn pgbouncer_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("PgBouncer ")?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(pgbouncer_version("PgBouncer 1.18.0"), Some((1, 18)));
        assert!(pgbouncer_version("PgBouncer 1.9.0") < Some(OLDEST_PGBOUNCER));
        assert!(pgbouncer_version("PgBouncer 1.21.0") >= Some(OLDEST_PGBOUNCER));
        assert!(pgbouncer_version("PgBouncer 2.0.0") >= Some(OLDEST_PGBOUNCER));
        assert_eq!(pgbouncer_version("pgbouncer: not found"), None);
    }
}
