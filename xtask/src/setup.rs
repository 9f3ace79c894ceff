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

/// Decides where the servers come from, after installing what is missing for it.
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
        if let Need::SomeTests(remedy) = it.need {
            println!(
                "xtask: without {} some tests will fail: {reason}",
                it.description
            );
            println!("xtask: ({remedy})");
        }
        !matches!(it.need, Need::SomeTests(_) | Need::Clocks)
    });
    if missing.is_empty() {
        return Ok(plan);
    }
    let lacks = |need| lacks(&missing, &need);
    if !lacks(Need::Build) && docker::is_available() {
        if lacks(Need::Postgres) {
            plan.postgres = Some(Source::Docker(docker::POSTGRES.to_owned()));
        }
        if lacks(Need::Mysql) {
            plan.mysql[0] = Source::Docker(docker::MARIADB.to_owned());
        }
        return Ok(plan);
    }
    if missing.iter().all(|it| it.need == Need::Mysql) && servers::url_of(MYSQL_URL).is_some() {
        println!("xtask: no MariaDB beside the server of {MYSQL_URL}: {reason}");
        plan.mysql.retain(|source| *source != Source::Private);
        return Ok(plan);
    }
    bail!(remedies(&missing, reason));
}

/// Makes sure that the tests can be built, whatever they then run on.
pub(crate) fn prepare_build() -> Result<()> {
    let (missing, reason) = install_missing(&Plan::default())?;
    if !missing.is_empty() {
        bail!(remedies(&missing, reason));
    }
    Ok(())
}

/// Installs what is missing. Returns what still is, and why.
fn install_missing(plan: &Plan) -> Result<(Vec<Requirement>, &'static str)> {
    let lacking = missing(plan);
    let Some(mut words) = root().filter(|_| !lacking.is_empty()) else {
        let unable = "this machine has no apt-get, or no root and no passwordless sudo";
        return Ok((lacking, unable));
    };
    println!("xtask: this machine lacks");
    for requirement in &lacking {
        println!("xtask:   {}", requirement.description);
    }
    let packages = packages(&lacking);
    println!("xtask: installing with apt-get: {}", packages.join(" "));
    println!(
        "xtask: (no server of the machine's own is made or started, and none that runs is touched)"
    );
    words.extend(["sh", "-c", INSTALL, "install"]);
    if lacking.iter().any(|it| it.need == Need::Postgres) {
        words.push("--german");
    }
    words.extend(packages);
    let mut install = Command::new(words[0]);
    install.args(&words[1..]).stdin(Stdio::null());
    let status = cleanup::uninterrupted(|| install.status())?;
    if !status.success() {
        println!("xtask: the installation has failed ({status})");
    }
    Ok((missing(plan), "apt-get has not installed it, see above"))
}

/// How to become root: the words before a command. None without apt-get, which is what root is needed for.
fn root() -> Option<Vec<&'static str>> {
    programs::find("apt-get")?;
    if geteuid().is_root() {
        return Some(Vec::new());
    }
    programs::find("sudo")?;
    let works = run::output(Command::new("sudo").args(["-n", "true"])).is_ok();
    works.then(|| vec!["sudo", "-n"])
}

fn remedies(missing: &[Requirement], reason: &str) -> String {
    let lines = missing.iter().map(|it| format!("  - {}\n", it.description));
    let elsewhere = if lacks(missing, &Need::Build) {
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

fn lacks(missing: &[Requirement], need: &Need) -> bool {
    missing.iter().any(|it| it.need == *need)
}

struct Requirement {
    need: Need,
    description: &'static str,
    packages: &'static str,
}

#[derive(PartialEq, Eq)]
enum Need {
    /// To build the tests, so that no server elsewhere makes up for it.
    Build,
    Postgres,
    Mysql,
    Patroni,
    /// Some tests, and nothing else could stand in for it. This is how to get it.
    SomeTests(&'static str),
    /// To set clocks. Without it none is set.
    Clocks,
}

/// What pkg-config calls MySQL's and MariaDB's client libraries.
const MYSQL_LIBRARIES: [&str; 3] = ["mysqlclient", "libmariadb", "mariadb"];

/// What is missing for a run with these servers.
fn missing(plan: &Plan) -> Vec<Requirement> {
    let mut missing = Vec::new();
    let mut require = |need, description, packages, met: bool| {
        if !met {
            missing.push(Requirement {
                need,
                description,
                packages,
            });
        }
    };
    let has = |program| programs::find(program).is_some();
    require(
        Need::Build,
        "PostgreSQL's client library (libpq)",
        "libpq-dev",
        is_known(&["libpq"], "pg_config --libdir"),
    );
    require(
        Need::Build,
        "MySQL's or MariaDB's client library (libmysqlclient or libmariadb), and pkg-config, which finds it",
        "pkg-config libmariadb-dev",
        is_known(&MYSQL_LIBRARIES, "mysql_config --libs"),
    );
    if matches!(plan.postgres, Some(Source::Private | Source::Release(_))) {
        require(
            Need::Postgres,
            "what a German locale is made of (localedef, /usr/share/i18n)",
            "locales",
            postgres::can_create_locale(),
        );
    }
    if plan.postgres == Some(Source::Private) {
        let server = programs::postgres();
        require(
            Need::Postgres,
            "a PostgreSQL server (initdb, postgres, psql)",
            "postgresql",
            server.is_ok(),
        );
        require(
            Need::Postgres,
            "PostgreSQL's messages in German",
            // Small container images install the server's package without its translations: see install.sh.
            "",
            // Unknown before there is a server, whose version they have to match.
            server.map_or(true, |it| postgres::has_german_messages(&it)),
        );
    }
    if plan.postgres.is_some() {
        // Tests of PostgreSQL go through it, wherever the server is.
        require(
            Need::SomeTests("Debian or Ubuntu, as root: apt-get install pgbouncer"),
            "PgBouncer, a pooler (pgbouncer)",
            "pgbouncer",
            has("pgbouncer"),
        );
    }
    if plan.patroni {
        require(
            Need::Patroni,
            "Patroni, and etcd 3.4 or 3.5, which choose a primary (patroni, patronictl, etcd, python3-etcd)",
            // With the client of etcd's API that is used: see patroni.rs.
            "patroni python3-etcd etcd-server",
            has("patroni") && has("patronictl") && has("etcd"),
        );
    }
    if plan.mysql.contains(&Source::Private) {
        require(
            Need::Mysql,
            "a MariaDB or MySQL server (mariadbd and mariadb-install-db, or mysqld)",
            // Without `-core` it would make and start the machine's own server.
            "mariadb-server-core mariadb-client-core",
            programs::mysql().is_ok(),
        );
    }
    if plan.faketime {
        require(
            Need::Clocks,
            "a library that sets a program's clock (libfaketime)",
            "libfaketime",
            programs::faketime().is_some(),
        );
    }
    if plan.browser {
        require(
            Need::SomeTests(
                "Debian, as root: apt-get install chromium chromium-driver; Ubuntu: snap install chromium; elsewhere set \
                 CHROMIUM and CHROMEDRIVER to the paths of both",
            ),
            "Chromium and its WebDriver (chromium, chromedriver)",
            "chromium chromium-driver",
            programs::has_browser(),
        );
    }
    missing
}

/// Whether pkg-config knows one of these libraries, or this command knows it.
fn is_known(libraries: &[&str], command: &str) -> bool {
    let succeeds = |command: &str| {
        let mut env = Command::new("env");
        run::output(env.args(words(command))).is_ok()
    };
    let known = |name: &&str| succeeds(&format!("pkg-config --exists {name}"));
    libraries.iter().any(known) || succeeds(command)
}

/// The Debian packages that these are in.
fn packages(missing: &[Requirement]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().flat_map(|it| words(it.packages)).collect();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if system.lines().any(|line| line == "ID=ubuntu") {
        // Ubuntu's packages of that name install a snap, which containers can't run.
        packages.retain(|package| !package.starts_with("chromium"));
    }
    packages
}
