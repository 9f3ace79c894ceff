//! What the tests require of the machine, where the servers come from, and how what is missing is installed.

use std::fs;

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::run::{self, succeeds, words};
use crate::servers::{self, MARIADB_URL, MYSQL_URL, POSTGRES_URL, Plan, ServerArguments, Source};
use crate::{cargo, docker, postgres, programs, release};

/// Installs packages; a file of its own, so that people can see what runs as root.
const INSTALL: &str = include_str!("install.sh");

pub(crate) fn setup(arguments: &ServerArguments) -> Result<u8> {
    let mut plan = Plan::requested(arguments);
    // For the torture: two commands at the same time could not both install what they lack.
    plan.others.extend([&FAKETIME, &BROWSER]);
    prepare(plan)?;
    cargo::diesel_cli()?;
    println!("xtask: everything that `cargo xtask test` needs is there");
    Ok(0)
}

/// Decides where the servers come from, after installing what is missing for them, and to build the tests.
pub(crate) fn prepare(mut plan: Plan) -> Result<Plan> {
    for source in plan.postgres.iter_mut().chain(&mut plan.mysql) {
        match source {
            Source::Release(release) if release.is_available() => release.fetch()?,
            Source::Release(release) if docker::is_available() => {
                *source = Source::Docker(release.image());
            }
            Source::Release(_) => bail!(
                "servers of other versions come from Debian's packages, for which apt-get and the package \
                 debian-archive-keyring are needed, or from Docker"
            ),
            Source::Url(variable) => drop(servers::required_url(variable)?),
            Source::Private | Source::Docker(_) => {}
        }
    }
    let (mut missing, reason) = install_missing(&plan);
    if plan.postgres.is_some() {
        plan.pgbouncer = release::pgbouncer();
    }
    missing.retain(|it| {
        if it.of == Of::SomeTests {
            let what = it.description;
            println!(
                "xtask: without {what} some tests fail, or the torture sets no clock: {reason}"
            );
        }
        it.of != Of::SomeTests
    });
    let lacks = |of: Of| missing.iter().any(|it| it.of == of);
    if missing.is_empty() {
        return Ok(plan);
    }
    if !lacks(Of::Everything) && docker::is_available() {
        if lacks(Of::Postgres) {
            plan.postgres = Some(Source::Docker(docker::POSTGRES.to_owned()));
        }
        if lacks(Of::Mysql) {
            plan.mysql[0] = Source::Docker(docker::MARIADB.to_owned());
        }
        return Ok(plan);
    }
    if missing.iter().all(|it| it.of == Of::Mysql) && plan.mysql.contains(&Source::Url(MYSQL_URL)) {
        println!("xtask: no MariaDB beside the server of {MYSQL_URL}: {reason}");
        plan.mysql.retain(|source| *source != Source::Private);
        return Ok(plan);
    }
    let what: String = missing.iter().map(|it| it.line()).collect();
    bail!(
        "the tests need what is missing here:\n{what}({reason}). Install it, in Debian or Ubuntu by `cargo xtask setup` as root, which \
         makes and starts no server of the machine's own; or see \"Servers\" in CONTRIBUTING.md for Docker and for servers that are \
         there already ({POSTGRES_URL}, {MYSQL_URL}, {MARIADB_URL})"
    )
}

/// Installs what is missing. Returns what still is, and why.
fn install_missing(plan: &Plan) -> (Vec<&'static Need>, &'static str) {
    let lacking = missing(plan);
    let sudo = if geteuid().is_root() { "" } else { "sudo -n " };
    if lacking.is_empty() || !has("apt-get") || !succeeds(&format!("{sudo}true")) {
        let unable = "this machine has no apt-get, or no root and no passwordless sudo";
        return (lacking, unable);
    }
    let packages = packages(&lacking);
    let what: String = lacking.iter().map(|it| it.line()).collect();
    println!(
        "xtask: this machine lacks\n{what}xtask: installing with apt-get: {}\n\
         xtask: (no server of the machine's own is made or started, and none that runs is touched)",
        packages.join(" ")
    );
    let mut install = run::command(&format!("{sudo}sh -c"));
    install.args([INSTALL, "install"]).args(packages);
    if let Err(error) = run::uninterrupted(&mut install) {
        println!("xtask: {error}");
    }
    (missing(plan), "apt-get has not installed it, see above")
}

/// What can't be done without something.
#[derive(PartialEq, Eq)]
enum Of {
    /// Nothing is built or started, so that no server elsewhere makes up for it.
    Everything,
    /// PostgreSQL is not started.
    Postgres,
    /// MariaDB is not started.
    Mysql,
    SomeTests,
}

/// What is on a machine, or can be installed.
pub(crate) struct Need {
    of: Of,
    description: &'static str,
    /// The Debian packages that it is in.
    packages: &'static str,
    is_met: fn() -> bool,
}

impl Need {
    fn line(&self) -> String {
        format!("  - {}\n", self.description)
    }
}

static LIBRARIES: [Need; 2] = [
    Need {
        of: Of::Everything,
        description: "PostgreSQL's client library (libpq)",
        packages: "libpq-dev",
        is_met: || succeeds("pkg-config --exists libpq || pg_config --libdir"),
    },
    Need {
        of: Of::Everything,
        description: "MySQL's or MariaDB's client library (libmysqlclient or libmariadb), and pkg-config, which finds it",
        packages: "pkg-config libmariadb-dev",
        // What it is called differs.
        is_met: || {
            succeeds(
                "pkg-config --exists mysqlclient || pkg-config --exists libmariadb || \
                 pkg-config --exists mariadb || mysql_config --libs",
            )
        },
    },
];
static LOCALES: Need = Need {
    of: Of::Postgres,
    description: "what a German locale is made of (localedef, /usr/share/i18n)",
    packages: "locales",
    is_met: postgres::can_create_locale,
};
static POSTGRES: Need = Need {
    of: Of::Postgres,
    description: "a PostgreSQL server (initdb, postgres, psql)",
    packages: "postgresql",
    is_met: || programs::postgres().is_ok(),
};
static GERMAN: Need = Need {
    of: Of::Postgres,
    description: "PostgreSQL's messages in German",
    // Small container images install the server's package without its translations: see install.sh.
    packages: "",
    is_met: || programs::postgres().is_ok_and(|it| postgres::has_german(&it)),
};
static PGBOUNCER: Need = Need {
    of: Of::SomeTests,
    description: "PgBouncer, a pooler (pgbouncer)",
    packages: "pgbouncer",
    is_met: || has("pgbouncer"),
};
static MYSQL: Need = Need {
    of: Of::Mysql,
    description: "a MariaDB or MySQL server (mariadbd and mariadb-install-db, or mysqld)",
    // Without `-core` it would make and start the machine's own server.
    packages: "mariadb-server-core mariadb-client-core",
    is_met: || programs::mysql().is_ok(),
};
pub(crate) static PATRONI: Need = Need {
    of: Of::Everything,
    description: "Patroni, and etcd 3.4 or 3.5, which choose a primary (patroni, patronictl, etcd, python3-etcd)",
    // With the client of etcd's API that is used: see patroni.rs.
    packages: "patroni python3-etcd etcd-server",
    is_met: || ["patroni", "patronictl", "etcd"].into_iter().all(has),
};
pub(crate) static FAKETIME: Need = Need {
    of: Of::SomeTests,
    description: "a library that sets a program's clock (libfaketime)",
    packages: "libfaketime",
    is_met: || programs::faketime().is_some(),
};
pub(crate) static BROWSER: Need = Need {
    of: Of::SomeTests,
    description: "Chromium and its WebDriver (chromium, chromedriver, or the variables CHROMIUM and CHROMEDRIVER)",
    packages: "chromium chromium-driver",
    is_met: programs::has_browser,
};

/// What is missing for a run with these servers.
fn missing(plan: &Plan) -> Vec<&'static Need> {
    let mut needs: Vec<_> = LIBRARIES
        .iter()
        .chain(plan.others.iter().copied())
        .collect();
    match plan.postgres {
        Some(Source::Private) => needs.extend([&LOCALES, &POSTGRES, &GERMAN]),
        Some(Source::Release(_)) => needs.push(&LOCALES),
        _ => {}
    }
    // Tests of PostgreSQL go through it, wherever the server is.
    needs.extend(plan.postgres.as_ref().map(|_| &PGBOUNCER));
    let mysql = plan.mysql.contains(&Source::Private);
    needs.extend(mysql.then_some(&MYSQL));
    needs.retain(|it| !(it.is_met)());
    needs
}

fn has(program: &str) -> bool {
    programs::find(program).is_some()
}

/// The Debian packages that these are in.
fn packages(missing: &[&Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().flat_map(|it| words(it.packages)).collect();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if system.lines().any(|line| line == "ID=ubuntu") {
        // Ubuntu's packages of that name install a snap, which containers can't run.
        packages.retain(|package| !package.starts_with("chromium"));
    }
    packages
}
