//! What the tests require of the machine, where the servers come from, and how what is missing is installed.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::run::{self, words};
use crate::servers::{self, MARIADB_URL, MYSQL_URL, POSTGRES_URL, Plan, ServerArguments, Source};
use crate::{cargo, cleanup, docker, postgres, programs, release};

/// Installs packages; a file of its own, so that people can see what runs as root.
const INSTALL: &str = include_str!("install.sh");

pub(crate) fn setup(arguments: &ServerArguments) -> Result<u8> {
    let mut plan = Plan::requested(arguments);
    // For the torture: two commands at the same time could not both install what they lack.
    plan.faketime = true;
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
            Source::Private | Source::PrivateMysql | Source::Docker(_) => {}
        }
    }
    let (mut missing, reason) = install_missing(&plan)?;
    if plan.postgres.is_some() {
        plan.pgbouncer = release::pgbouncer();
    }
    missing.retain(|it| {
        let remedy = it.remedy();
        if let Some(remedy) = remedy {
            let what = it.description();
            println!("xtask: without {what} some tests will fail: {reason}");
            println!("xtask: ({remedy})");
        }
        // Without libfaketime no clock is set.
        remedy.is_none() && *it != Need::Faketime
    });
    if missing.is_empty() {
        return Ok(plan);
    }
    if !lacks(&missing, &TO_BUILD) && docker::is_available() {
        if lacks(&missing, &TO_START_POSTGRES) {
            plan.postgres = Some(Source::Docker(docker::POSTGRES.to_owned()));
        }
        if missing.contains(&Need::Mysql) {
            plan.mysql[0] = Source::Docker(docker::MARIADB.to_owned());
        }
        return Ok(plan);
    }
    if missing.iter().all(|it| *it == Need::Mysql) && servers::url_of(MYSQL_URL).is_some() {
        println!("xtask: no MariaDB beside the server of {MYSQL_URL}: {reason}");
        plan.mysql.retain(|source| *source != Source::Private);
        return Ok(plan);
    }
    bail!(remedies(&missing, reason));
}

/// Installs what is missing. Returns what still is, and why.
fn install_missing(plan: &Plan) -> Result<(Vec<Need>, &'static str)> {
    let lacking = Need::missing(plan);
    let Some(mut words) = root().filter(|_| !lacking.is_empty()) else {
        let unable = "this machine has no apt-get, or no root and no passwordless sudo";
        return Ok((lacking, unable));
    };
    println!("xtask: this machine lacks");
    for need in &lacking {
        println!("xtask:   {}", need.description());
    }
    let packages = packages(&lacking);
    println!("xtask: installing with apt-get: {}", packages.join(" "));
    println!(
        "xtask: (no server of the machine's own is made or started, and none that runs is touched)"
    );
    words.extend(["sh", "-c", INSTALL, "install"]);
    if lacks(&lacking, &TO_START_POSTGRES) {
        words.push("--german");
    }
    words.extend(packages);
    let mut install = Command::new(words[0]);
    install.args(&words[1..]).stdin(Stdio::null());
    let status = cleanup::uninterrupted(|| install.status())?;
    if !status.success() {
        println!("xtask: the installation has failed ({status})");
    }
    Ok((
        Need::missing(plan),
        "apt-get has not installed it, see above",
    ))
}

/// How to become root: the words before a command. None without apt-get, which is what root is needed for.
fn root() -> Option<Vec<&'static str>> {
    programs::find("apt-get")?;
    if geteuid().is_root() {
        return Some(Vec::new());
    }
    programs::find("sudo")?;
    succeeds("sudo -n true").then(|| vec!["sudo", "-n"])
}

fn remedies(missing: &[Need], reason: &str) -> String {
    let lines = missing
        .iter()
        .map(|it| format!("  - {}\n", it.description()));
    let elsewhere = if lacks(missing, &TO_BUILD) {
        "  - elsewhere: the same libraries from that system's packages, to compile with".to_owned()
    } else {
        format!(
            "  - Docker: once `docker info` works for this user, the servers run in containers\n  \
               - servers that are there already, in which the tests may make databases of their own:\n      \
                   {POSTGRES_URL}=postgres://USER:PASSWORD@HOST/DATABASE\n      \
                   {MYSQL_URL}=mysql://USER:PASSWORD@HOST/DATABASE, or {MARIADB_URL}, or both"
        )
    };
    format!(
        "the tests need what is missing here:\n{}({reason}). Any of these helps:\n  \
           - Debian or Ubuntu, as root: apt-get install --no-install-recommends {}\n    \
             `cargo xtask setup` as root does it without making or starting the machine's own server\n{elsewhere}",
        lines.collect::<String>(),
        packages(missing).join(" ")
    )
}

fn lacks(missing: &[Need], needs: &[Need]) -> bool {
    missing.iter().any(|it| needs.contains(it))
}

/// What is on a machine, or can be installed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    PostgresLibrary,
    MysqlLibrary,
    Locales,
    Postgres,
    German,
    Pgbouncer,
    Patroni,
    Mysql,
    Faketime,
    Browser,
}

/// To build the tests, so that no server elsewhere makes up for it.
const TO_BUILD: [Need; 2] = [Need::PostgresLibrary, Need::MysqlLibrary];
/// To start PostgreSQL.
const TO_START_POSTGRES: [Need; 3] = [Need::Locales, Need::Postgres, Need::German];

/// What finds the client library: what it is called differs.
const MYSQL_LIBRARY: &str = "pkg-config --exists mysqlclient || pkg-config --exists libmariadb || \
    pkg-config --exists mariadb || mysql_config --libs";

impl Need {
    /// What is missing for a run with these servers.
    fn missing(plan: &Plan) -> Vec<Self> {
        let mut needs = TO_BUILD.to_vec();
        match plan.postgres {
            Some(Source::Private) => needs.extend(TO_START_POSTGRES),
            Some(Source::Release(_)) => needs.push(Self::Locales),
            _ => {}
        }
        // Tests of PostgreSQL go through it, wherever the server is.
        needs.extend(plan.postgres.as_ref().map(|_| Self::Pgbouncer));
        needs.extend(plan.patroni.then_some(Self::Patroni));
        let mysql = plan.mysql.contains(&Source::Private);
        needs.extend(mysql.then_some(Self::Mysql));
        needs.extend(plan.faketime.then_some(Self::Faketime));
        needs.extend(plan.browser.then_some(Self::Browser));
        needs.retain(|it| !it.is_met());
        needs
    }

    fn is_met(self) -> bool {
        let has = |program| programs::find(program).is_some();
        match self {
            Self::PostgresLibrary => succeeds("pkg-config --exists libpq || pg_config --libdir"),
            Self::MysqlLibrary => succeeds(MYSQL_LIBRARY),
            Self::Locales => postgres::can_create_locale(),
            Self::Postgres => programs::postgres().is_ok(),
            // Unknown before there is a server, whose version they have to match.
            Self::German => programs::postgres().map_or(true, |it| postgres::has_german(&it)),
            Self::Pgbouncer => has("pgbouncer"),
            Self::Patroni => has("patroni") && has("patronictl") && has("etcd"),
            Self::Mysql => programs::mysql().is_ok(),
            Self::Faketime => programs::faketime().is_some(),
            Self::Browser => programs::has_browser(),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::PostgresLibrary => "PostgreSQL's client library (libpq)",
            Self::MysqlLibrary => {
                "MySQL's or MariaDB's client library (libmysqlclient or libmariadb), and pkg-config, which finds it"
            }
            Self::Locales => "what a German locale is made of (localedef, /usr/share/i18n)",
            Self::Postgres => "a PostgreSQL server (initdb, postgres, psql)",
            Self::German => "PostgreSQL's messages in German",
            Self::Pgbouncer => "PgBouncer, a pooler (pgbouncer)",
            Self::Patroni => {
                "Patroni, and etcd 3.4 or 3.5, which choose a primary (patroni, patronictl, etcd, python3-etcd)"
            }
            Self::Mysql => "a MariaDB or MySQL server (mariadbd and mariadb-install-db, or mysqld)",
            Self::Faketime => "a library that sets a program's clock (libfaketime)",
            Self::Browser => "Chromium and its WebDriver (chromium, chromedriver)",
        }
    }

    /// The Debian packages that it is in.
    fn packages(self) -> &'static str {
        match self {
            Self::PostgresLibrary => "libpq-dev",
            Self::MysqlLibrary => "pkg-config libmariadb-dev",
            Self::Locales => "locales",
            Self::Postgres => "postgresql",
            // Small container images install the server's package without its translations: see install.sh.
            Self::German => "",
            Self::Pgbouncer => "pgbouncer",
            // With the client of etcd's API that is used: see patroni.rs.
            Self::Patroni => "patroni python3-etcd etcd-server",
            // Without `-core` it would make and start the machine's own server.
            Self::Mysql => "mariadb-server-core mariadb-client-core",
            Self::Faketime => "libfaketime",
            Self::Browser => "chromium chromium-driver",
        }
    }

    /// How to get what only some tests need, if nothing else could stand in for it.
    fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Pgbouncer => Some("Debian or Ubuntu, as root: apt-get install pgbouncer"),
            Self::Browser => Some(
                "Debian, as root: apt-get install chromium chromium-driver; Ubuntu: snap install chromium; elsewhere set \
                 CHROMIUM and CHROMEDRIVER to the paths of both",
            ),
            _ => None,
        }
    }
}

fn succeeds(script: &str) -> bool {
    let mut shell = Command::new("sh");
    run::output(shell.args(["-c", script])).is_ok()
}

/// The Debian packages that these are in.
fn packages(missing: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().flat_map(|it| words(it.packages())).collect();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if system.lines().any(|line| line == "ID=ubuntu") {
        // Ubuntu's packages of that name install a snap, which containers can't run.
        packages.retain(|package| !package.starts_with("chromium"));
    }
    packages
}
