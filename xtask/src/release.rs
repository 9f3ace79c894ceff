//! Programs of other versions than the machine's, from Debian's packages: unpacked into a cache, not installed.
//!
//! What is unpacked brings its own C library, and is started by that library's loader: so it runs on whatever the
//! machine is, as any user, and leaves the machine's packages alone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use nix::unistd::geteuid;

use crate::programs::{self, MysqlServer};
use crate::run;

/// A version of a server, or of PgBouncer: what to unpack, and from where.
#[derive(PartialEq, Eq)]
pub(crate) struct Release {
    /// That of its directory in the cache.
    pub(crate) name: &'static str,
    pub(crate) suite: &'static str,
    packages: &'static str,
    /// The directory of its programs, in what is unpacked.
    bin: &'static str,
    programs: &'static str,
}

static MARIADB_11: Release = Release {
    name: "mariadb-11.8",
    suite: "trixie",
    packages: "mariadb-server-core mariadb-client-core galera-4",
    bin: "usr/sbin",
    programs: "mariadbd ../bin/my_print_defaults ../bin/resolveip",
};
pub(crate) static MYSQL_9: Release = Release {
    name: "mysql-9",
    suite: "sid",
    packages: "mysql-server-core",
    bin: "usr/sbin",
    programs: "mysqld",
};
static POSTGRES_17: Release = Release {
    name: "postgres-17",
    suite: "trixie",
    packages: "postgresql-17",
    bin: "usr/lib/postgresql/17/bin",
    programs: "initdb postgres psql",
};
static POSTGRES_18: Release = Release {
    name: "postgres-18",
    suite: "sid",
    packages: "postgresql-18",
    bin: "usr/lib/postgresql/18/bin",
    programs: "initdb postgres psql",
};
/// Of a release, so that it changes little.
static PGBOUNCER: Release = Release {
    name: "pgbouncer",
    suite: "trixie",
    packages: "pgbouncer",
    bin: "usr/sbin",
    programs: "pgbouncer",
};

/// The versions that `--server` has.
pub(crate) static SERVERS: [&Release; 4] = [&MARIADB_11, &MYSQL_9, &POSTGRES_17, &POSTGRES_18];

/// Reads the name of one of them that begins so.
pub(crate) fn parser(beginning: &str) -> impl TypedValueParser<Value = &'static Release> {
    let names = SERVERS.iter().map(|it| it.name);
    let find = |name: String| SERVERS.into_iter().find(|it| it.name == name);
    PossibleValuesParser::new(names.filter(|it| it.starts_with(beginning)))
        .try_map(move |name| find(name).context("there is no such server"))
}

/// Where a Debian system has the keys of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Unpacks packages; a file of its own, as all that apt-get does.
const UNPACK: &str = include_str!("unpack.sh");

impl Release {
    /// `mysql` for `mysql-9`.
    pub(crate) fn product(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }

    /// The image to use where there are no packages: `mysql:9` for `mysql-9`.
    pub(crate) fn image(&self) -> String {
        self.name.replacen('-', ":", 1)
    }

    fn directory(&self) -> PathBuf {
        cache().join(self.name)
    }

    /// The directory that stands for the machine's `/usr`.
    pub(crate) fn usr(&self) -> PathBuf {
        self.directory().join("usr")
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.directory().join(self.bin)
    }

    pub(crate) fn mysql_server(&self) -> MysqlServer {
        let usr = self.usr();
        let is_mariadb = self.product() == "mariadb";
        let server = if is_mariadb { "mariadbd" } else { "mysqld" };
        MysqlServer {
            server: self.bin().join(server),
            install: is_mariadb.then(|| usr.join("bin/mariadb-install-db")),
            base: Some(usr),
        }
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
        ensure!(
            self.is_available(),
            "this machine has no apt-get, or not the package debian-archive-keyring"
        );
        println!(
            "xtask: unpacking {} from Debian's {} in {}, which stays there; nothing is installed",
            self.packages,
            self.suite,
            directory.display()
        );
        let mut unpack = Command::new("sh");
        unpack.args(["-c", UNPACK, "unpack"]).arg(directory);
        unpack.args([KEYS, self.suite, self.packages, self.bin, self.programs]);
        run::output(&mut unpack)?;
        Ok(())
    }
}

/// Where what is unpacked stays: root's servers run as other users, who can't look into root's home.
fn cache() -> PathBuf {
    if geteuid().is_root() {
        return PathBuf::from("/var/cache/diesel-locks");
    }
    let home = env::home_dir().unwrap_or_else(env::temp_dir);
    home.join(".cache/diesel-locks")
}

/// The variable with its path, for the tests that need it.
pub(crate) const PGBOUNCER_VARIABLE: &str = "DIESEL_LOCKS_TEST_PGBOUNCER";

/// The PgBouncer of the variable, the machine's own, or one of Debian's packages, which is unpacked for it.
pub(crate) fn pgbouncer() -> Option<PathBuf> {
    let given = env::var_os(PGBOUNCER_VARIABLE).map(PathBuf::from);
    let installed = || programs::find("pgbouncer").filter(|it| tells_statements_apart(it));
    if let Some(found) = given.or_else(installed) {
        return Some(found);
    }
    if let Err(error) = PGBOUNCER.fetch() {
        println!(
            "xtask: no PgBouncer 1.21 or newer, without which some tests will fail: {error:#}"
        );
        println!("xtask: (install it, or set {PGBOUNCER_VARIABLE} to its path)");
        return None;
    }
    Some(PGBOUNCER.bin().join("pgbouncer"))
}

/// Whether this is `PgBouncer 1.21.0` or newer, which tells the prepared statements of its clients apart.
fn tells_statements_apart(program: &Path) -> bool {
    let version = programs::version(program).unwrap_or_default();
    let numbers = version.trim_start_matches("PgBouncer ").split('.');
    let numbers: Vec<u32> = numbers.map_while(|it| it.parse().ok()).collect();
    numbers >= vec![1, 21]
}
