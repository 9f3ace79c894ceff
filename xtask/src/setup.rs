//! Deciding where the servers come from, and installing what is missing.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::arguments::ServerArguments;
use crate::database_url::{self, MARIADB_URL, MYSQL_URL, POSTGRES_URL};
use crate::diesel_cli;
use crate::docker;
use crate::plan::{Plan, Source};
use crate::requirements::{Requirement, missing};
use crate::{interrupt, path_lookup, pgbouncer, run};

/// Installs packages; a file of its own, so that people can see what runs as root.
const INSTALL: &str = include_str!("install.sh");

/// `cargo xtask setup`.
pub(crate) fn setup(arguments: &ServerArguments) -> Result<u8> {
    prepare(Plan::requested(arguments))?;
    diesel_cli::path()?;
    println!("xtask: everything that `cargo xtask test` needs is there");
    Ok(0)
}

/// Decides where the servers come from, after installing what is missing for it.
pub(crate) fn prepare(mut plan: Plan) -> Result<Plan> {
    for source in plan.postgres.iter_mut().chain(&mut plan.mysql) {
        if let Source::Release(release) = *source {
            if release.is_available() {
                release.fetch()?;
            } else if docker::is_available() {
                *source = Source::Docker(release.image());
            } else {
                bail!(
                    "servers of other versions come from Debian's packages, for which apt-get and the package \
                       debian-archive-keyring are needed, or from Docker"
                );
            }
        }
    }
    for source in plan.postgres.iter().chain(&plan.mysql) {
        if let Source::Url(variable) = source {
            database_url::required(variable)?;
        }
    }
    let mut missing_requirements = missing(&plan);
    let mut reason = "this machine has no apt-get, or no root and no passwordless sudo";
    if let (false, Some(root)) = (missing_requirements.is_empty(), root()) {
        install(&root, &missing_requirements)?;
        missing_requirements = missing(&plan);
        reason = "apt-get has not installed it, see above";
    }
    if plan.postgres.is_some() {
        plan.pgbouncer = pgbouncer::path();
    }
    // It is done without.
    missing_requirements.retain(|requirement| *requirement != Requirement::Faketime);
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
        if missing_requirements.contains(&needed) {
            missing_requirements.retain(|requirement| *requirement != needed);
            println!("xtask: no {name}, without which some tests will fail: {reason}");
            println!("xtask: ({remedy})");
        }
    }
    if missing_requirements.is_empty() {
        return Ok(plan);
    }
    let buildable = !missing_requirements
        .iter()
        .any(|requirement| requirement.is_for_build());
    if buildable && docker::is_available() {
        if missing_requirements
            .iter()
            .any(|requirement| requirement.is_for_postgres())
        {
            plan.postgres = Some(Source::Docker(docker::POSTGRES));
        }
        if let (true, Some(source)) = (
            missing_requirements.contains(&Requirement::MariadbServer),
            plan.mysql.first_mut(),
        ) {
            *source = Source::Docker(docker::MARIADB);
        }
        return Ok(plan);
    }
    if missing_requirements == [Requirement::MariadbServer]
        && database_url::from_variable(MYSQL_URL).is_some()
    {
        println!("xtask: no MariaDB beside the server of {MYSQL_URL}: {reason}");
        plan.mysql.retain(|source| *source != Source::Private);
        return Ok(plan);
    }
    bail!(remedies(&missing_requirements, reason));
}

/// Makes sure that the tests can be built, whatever they then run on.
pub(crate) fn prepare_build() -> Result<()> {
    let nothing = Plan {
        postgres: None,
        mysql: Vec::new(),
        pgbouncer: None,
        faketime: false,
        browser: false,
    };
    let mut missing_requirements = missing(&nothing);
    if let (false, Some(root)) = (missing_requirements.is_empty(), root()) {
        install(&root, &missing_requirements)?;
        missing_requirements = missing(&nothing);
    }
    if missing_requirements.is_empty() {
        return Ok(());
    }
    bail!(remedies(
        &missing_requirements,
        "it could not be installed from here"
    ));
}

/// How to become root: the words before a command. None without apt-get, which is what root is needed for.
fn root() -> Option<Vec<&'static str>> {
    path_lookup::find("apt-get")?;
    if geteuid().is_root() {
        return Some(Vec::new());
    }
    path_lookup::find("sudo")?;
    run::output(Command::new("sudo").args(["-n", "true"]))
        .is_ok()
        .then(|| vec!["sudo", "-n"])
}

fn install(root: &[&str], missing_requirements: &[Requirement]) -> Result<()> {
    let packages = packages(missing_requirements);
    println!("xtask: this machine lacks");
    for requirement in missing_requirements {
        println!("xtask:   {}", requirement.description());
    }
    println!("xtask: installing with apt-get: {}", packages.join(" "));
    println!(
        "xtask: (no server of the machine's own is made or started, and none that runs is touched)"
    );
    let mut words = root.to_vec();
    words.extend(["sh", "-c", INSTALL, "install"]);
    if missing_requirements.iter().any(|requirement| {
        matches!(
            requirement,
            Requirement::PostgresServer | Requirement::German
        )
    }) {
        words.push("--german");
    }
    words.extend(packages);
    // Not with `run::run`, which would end it halfway after a signal.
    let status = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .status()?;
    interrupt::check()?;
    if !status.success() {
        println!("xtask: the installation has failed ({status})");
    }
    Ok(())
}

fn packages(missing_requirements: &[Requirement]) -> Vec<&'static str> {
    missing_requirements
        .iter()
        .flat_map(|requirement| requirement.packages())
        .copied()
        .collect()
}

/// Says what would make the requirements met.
fn remedies(missing_requirements: &[Requirement], reason: &str) -> String {
    let mut lines = vec!["the tests need what is missing here:".to_owned()];
    lines.extend(
        missing_requirements
            .iter()
            .map(|requirement| format!("  - {}", requirement.description())),
    );
    lines.push(format!("({reason}). Any of these helps:"));
    let packages = packages(missing_requirements).join(" ");
    if !packages.is_empty() {
        lines.push(format!(
            "  - Debian or Ubuntu, as root: apt-get install --no-install-recommends {packages}"
        ));
    }
    lines.push("    `cargo xtask setup` as root does it without making or starting the machine's own server".into());
    if missing_requirements
        .iter()
        .any(|requirement| requirement.is_for_build())
    {
        lines.push(
            "  - elsewhere: the same libraries from that system's packages, to compile with".into(),
        );
        return lines.join("\n");
    }
    lines.push(
        "  - Docker: once `docker info` works for this user, the servers run in containers".into(),
    );
    lines.push(
        "  - servers that are there already, in which the tests may make databases of their own:"
            .into(),
    );
    if missing_requirements
        .iter()
        .any(|requirement| requirement.is_for_postgres())
    {
        lines.push(format!(
            "      {POSTGRES_URL}=postgres://USER:PASSWORD@HOST/DATABASE"
        ));
    }
    if missing_requirements.contains(&Requirement::MariadbServer) {
        lines.push(format!(
            "      {MYSQL_URL}=mysql://USER:PASSWORD@HOST/DATABASE, or {MARIADB_URL}, or both"
        ));
    }
    lines.join("\n")
}
