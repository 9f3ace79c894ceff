//! Deciding where the servers come from, and installing what is missing.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::requirements::{Requirement, missing};
use crate::servers::{Plan, ServerArguments, Source};
use crate::{cleanup, diesel_cli, docker, programs, release, run, url};

/// Installs packages; a file of its own, so that people can see what runs as root.
const INSTALL: &str = include_str!("install.sh");

/// `cargo xtask setup`.
pub(crate) fn setup(arguments: &ServerArguments) -> Result<u8> {
    let mut plan = Plan::requested(arguments);
    // For the torture: two commands at the same time could not both install what they lack.
    plan.faketime = true;
    prepare(plan)?;
    diesel_cli::path()?;
    println!("xtask: everything that `cargo xtask test` needs is there");
    Ok(0)
}

/// Decides where the servers come from, after installing what is missing for it.
pub(crate) fn prepare(mut plan: Plan) -> Result<Plan> {
    for source in plan.postgres.iter_mut().chain(&mut plan.mysql) {
        match source {
            Source::Release(release) if release.unpacked().is_available() => {
                release.unpacked().fetch()?;
            }
            Source::Release(release) if docker::is_available() => {
                *source = Source::Docker(release.image());
            }
            Source::Release(_) => bail!(
                "servers of other versions come from Debian's packages, for which apt-get and the package \
                 debian-archive-keyring are needed, or from Docker"
            ),
            Source::Url(variable) => drop(url::required(variable)?),
            Source::Private | Source::Docker(_) => {}
        }
    }
    let (mut missing, reason) = install_missing(&plan)?;
    if plan.postgres.is_some() {
        plan.pgbouncer = release::pgbouncer();
    }
    // Nothing else could stand in for them, and only some tests need them.
    for (needed, name, remedy) in [
        (
            Requirement::PgBouncer,
            "PgBouncer",
            "Debian or Ubuntu, as root: apt-get install pgbouncer",
        ),
        (
            Requirement::Browser,
            "Chromium with chromedriver",
            "Debian, as root: apt-get install chromium chromium-driver; Ubuntu: snap install chromium; elsewhere set \
             CHROMIUM and CHROMEDRIVER to the paths of both",
        ),
    ] {
        if missing.contains(&needed) {
            println!("xtask: no {name}, without which some tests will fail: {reason}");
            println!("xtask: ({remedy})");
        }
    }
    missing.retain(|it| {
        use Requirement::{Browser, Faketime, PgBouncer};

        // Without a library that sets clocks, none is set.
        !matches!(it, PgBouncer | Browser | Faketime)
    });
    if missing.is_empty() {
        return Ok(plan);
    }
    if !missing.iter().any(|it| it.is_for_build()) && docker::is_available() {
        if missing.iter().any(|it| it.is_for_postgres()) {
            plan.postgres = Some(Source::Docker(docker::POSTGRES.to_owned()));
        }
        if missing.contains(&Requirement::MariadbServer) {
            plan.mysql[0] = Source::Docker(docker::MARIADB.to_owned());
        }
        return Ok(plan);
    }
    let mysql_given = url::from_variable(url::MYSQL).is_some();
    if missing == [Requirement::MariadbServer] && mysql_given {
        println!(
            "xtask: no MariaDB beside the server of {}: {reason}",
            url::MYSQL
        );
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
    let unable = "this machine has no apt-get, or no root and no passwordless sudo";
    let Some(mut words) = root().filter(|_| !lacking.is_empty()) else {
        return Ok((lacking, unable));
    };
    println!("xtask: this machine lacks");
    for requirement in &lacking {
        println!("xtask:   {}", requirement.description());
    }
    let packages = packages(&lacking);
    println!("xtask: installing with apt-get: {}", packages.join(" "));
    println!(
        "xtask: (no server of the machine's own is made or started, and none that runs is touched)"
    );
    words.extend(["sh", "-c", INSTALL, "install"]);
    if [Requirement::PostgresServer, Requirement::German]
        .iter()
        .any(|it| lacking.contains(it))
    {
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

fn packages(missing: &[Requirement]) -> Vec<&'static str> {
    missing.iter().flat_map(|it| it.packages()).collect()
}

/// Says what would make the requirements met.
fn remedies(missing: &[Requirement], reason: &str) -> String {
    let mut lines = vec!["the tests need what is missing here:".to_owned()];
    let descriptions = missing.iter().map(|it| it.description());
    lines.extend(descriptions.map(|text| format!("  - {text}")));
    lines.push(format!("({reason}). Any of these helps:"));
    let packages = packages(missing).join(" ");
    if !packages.is_empty() {
        let install = "apt-get install --no-install-recommends";
        lines.push(format!(
            "  - Debian or Ubuntu, as root: {install} {packages}"
        ));
    }
    let mut add = |line: &str| lines.push(line.to_owned());
    add(
        "    `cargo xtask setup` as root does it without making or starting the machine's own server",
    );
    if missing.iter().any(|it| it.is_for_build()) {
        add("  - elsewhere: the same libraries from that system's packages, to compile with");
        return lines.join("\n");
    }
    add("  - Docker: once `docker info` works for this user, the servers run in containers");
    add("  - servers that are there already, in which the tests may make databases of their own:");
    let (postgres, mysql, mariadb) = (url::POSTGRES, url::MYSQL, url::MARIADB);
    if missing.iter().any(|it| it.is_for_postgres()) {
        add(&format!(
            "      {postgres}=postgres://USER:PASSWORD@HOST/DATABASE"
        ));
    }
    if missing.contains(&Requirement::MariadbServer) {
        add(&format!(
            "      {mysql}=mysql://USER:PASSWORD@HOST/DATABASE, or {mariadb}, or both"
        ));
    }
    lines.join("\n")
}
