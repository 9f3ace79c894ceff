//! Finding programs, and what comes with them, on this machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run;

/// Where Debian keeps programs that only root is expected to run, which is not in the `PATH` of others.
const MORE_DIRECTORIES: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// The program's path, when there is one.
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

/// The directory of the newest PostgreSQL server's programs.
pub(crate) fn postgres_directory() -> Option<PathBuf> {
    // Debian and Ubuntu, then Red Hat's packages of postgresql.org.
    let packaged = ["/usr/lib/postgresql", "/usr"]
        .into_iter()
        .flat_map(|parent| {
            let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.path())
                .filter(|path| postgres_major(path).is_some())
                .collect::<Vec<_>>()
        });
    let newest = packaged
        .filter(|directory| has_postgres(&directory.join("bin")))
        .max_by_key(|directory| postgres_major(directory))
        .map(|directory| directory.join("bin"));
    newest.or_else(|| {
        find("initdb")?
            .parent()
            .map(Path::to_owned)
            .filter(|directory| has_postgres(directory))
    })
}

/// `15` for `/usr/lib/postgresql/15` and `/usr/pgsql-15`.
fn postgres_major(directory: &Path) -> Option<u32> {
    let name = directory.file_name()?.to_str()?;
    name.strip_prefix("pgsql-").unwrap_or(name).parse().ok()
}

fn has_postgres(directory: &Path) -> bool {
    ["initdb", "postgres", "psql"]
        .iter()
        .all(|name| directory.join(name).is_file())
}

/// A MariaDB or MySQL server, with what makes its data directory.
pub(crate) enum MysqlServer {
    MariaDb {
        server: PathBuf,
        install: PathBuf,
        base: Option<PathBuf>,
    },
    Mysql {
        server: PathBuf,
        base: Option<PathBuf>,
    },
}

impl MysqlServer {
    /// Where its files are, when that is not where they were made for.
    pub(crate) fn base(&self) -> Option<&Path> {
        match self {
            Self::MariaDb { base, .. } | Self::Mysql { base, .. } => base.as_deref(),
        }
    }
}

/// The machine's MariaDB or MySQL server.
pub(crate) fn mysql_server() -> Option<MysqlServer> {
    let install = find("mariadb-install-db").or_else(|| find("mysql_install_db"));
    if let (Some(server), Some(install)) = (find("mariadbd"), &install) {
        return Some(MysqlServer::MariaDb {
            server,
            install: install.clone(),
            base: None,
        });
    }
    // `mysqld` is either one's name.
    let server = find("mysqld")?;
    if version(&server)?.contains("MariaDB") {
        return Some(MysqlServer::MariaDb {
            server,
            install: install?,
            base: None,
        });
    }
    Some(MysqlServer::Mysql { server, base: None })
}

/// A MySQL that is not MariaDB.
pub(crate) fn oracle_mysql() -> Option<MysqlServer> {
    let server = find("mysqld")?;
    let is_mariadb = version(&server)?.contains("MariaDB");
    (!is_mariadb).then_some(MysqlServer::Mysql { server, base: None })
}

/// Whether there is a browser with its driver: in the `PATH`, or in the variables that the tests of the program `web`
/// read.
pub(crate) fn has_browser() -> bool {
    let has = |variable: &str, names: &[&str]| {
        env::var_os(variable).is_some() || names.iter().any(|name| find(name).is_some())
    };
    has(
        "CHROMIUM",
        &["chromium", "chromium-browser", "google-chrome"],
    ) && has("CHROMEDRIVER", &["chromedriver"])
}

/// The library that gives a program another time.
///
/// The one for programs with threads: with the other one, a thread that looks at the clock while another one reads the
/// file sees a time that is off by a second.
pub(crate) fn faketime() -> Option<PathBuf> {
    // Debian's directory is named after the machine, Red Hat's is not.
    let named = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let parents = named
        .map(|entry| entry.path())
        .chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    parents
        .map(|parent| parent.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}
