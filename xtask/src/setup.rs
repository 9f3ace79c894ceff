//! Deciding where the servers come from, and installing what is missing.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::diesel_cli;
use crate::docker;
use crate::needs::{Need, missing};
use crate::servers::{MARIADB_URL, MYSQL_URL, POSTGRES_URL, Plan, Source, url};
use crate::{ServerArguments, interrupt, programs, run};

/// Installs packages; a file of its own, so that people can see what runs as root.
const INSTALL: &str = include_str!("install.sh");

/// `cargo xtask setup`.
pub(crate) fn setup(arguments: &ServerArguments) -> Result<u8> {
    prepare(Plan::wanted(arguments))?;
    diesel_cli::path()?;
    println!("xtask: everything that `cargo xtask test` needs is there");
    Ok(0)
}

/// Decides where the servers come from, after installing what is missing for it.
pub(crate) fn prepare(mut plan: Plan) -> Result<Plan> {
    for source in plan.postgres.iter_mut().chain(&mut plan.mysql) {
        if let Source::Release(release) = *source {
            if release.is_to_be_had() {
                release.fetch()?;
            } else if programs::docker_works() {
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
            required_url(variable)?;
        }
    }
    let mut lacking = missing(&plan);
    let mut reason = "this machine has no apt-get, or no root and no passwordless sudo";
    if let (false, Some(root)) = (lacking.is_empty(), root()) {
        install(&root, &lacking)?;
        lacking = missing(&plan);
        reason = "apt-get has not installed it, see above";
    }
    // It is done without.
    lacking.retain(|need| *need != Need::Faketime);
    // Nothing else could stand in for it, and only some tests need it.
    if let Some(position) = lacking.iter().position(|need| *need == Need::PgBouncer) {
        lacking.remove(position);
        println!("xtask: no PgBouncer, without which some tests will fail: {reason}");
        println!("xtask: (Debian or Ubuntu, as root: apt-get install pgbouncer)");
    }
    if lacking.is_empty() {
        return Ok(plan);
    }
    let buildable = !lacking.iter().any(|need| need.to_build());
    if buildable && programs::docker_works() {
        if lacking.iter().any(|need| need.for_postgres()) {
            plan.postgres = Some(Source::Docker(docker::POSTGRES));
        }
        if let (true, Some(source)) = (
            lacking.contains(&Need::MariadbServer),
            plan.mysql.first_mut(),
        ) {
            *source = Source::Docker(docker::MARIADB);
        }
        return Ok(plan);
    }
    if lacking == [Need::MariadbServer] && url(MYSQL_URL).is_some() {
        println!("xtask: no MariaDB beside the server of {MYSQL_URL}: {reason}");
        plan.mysql.retain(|source| *source != Source::Private);
        return Ok(plan);
    }
    bail!(advice(&lacking, reason));
}

/// Makes sure that the tests can be built, whatever they then run on.
pub(crate) fn prepare_build() -> Result<()> {
    let nothing = Plan {
        postgres: None,
        mysql: Vec::new(),
        faketime: false,
    };
    let mut lacking = missing(&nothing);
    if let (false, Some(root)) = (lacking.is_empty(), root()) {
        install(&root, &lacking)?;
        lacking = missing(&nothing);
    }
    if lacking.is_empty() {
        return Ok(());
    }
    bail!(advice(&lacking, "it could not be installed from here"));
}

/// The URL that this variable has to have.
pub(crate) fn required_url(variable: &str) -> Result<String> {
    url(variable).with_context(|| format!("with --external, {variable} must name a server"))
}

/// How to become root: the words before a command. None without apt-get, which is what root is needed for.
fn root() -> Option<Vec<&'static str>> {
    programs::find("apt-get")?;
    if geteuid().is_root() {
        return Some(Vec::new());
    }
    programs::find("sudo")?;
    run::output(Command::new("sudo").args(["-n", "true"]))
        .is_ok()
        .then(|| vec!["sudo", "-n"])
}

fn install(root: &[&str], lacking: &[Need]) -> Result<()> {
    let packages = packages(lacking);
    println!("xtask: this machine lacks");
    for need in lacking {
        println!("xtask:   {}", need.what());
    }
    println!("xtask: installing with apt-get: {}", packages.join(" "));
    println!(
        "xtask: (no server of the machine's own is made or started, and none that runs is touched)"
    );
    let mut words = root.to_vec();
    words.extend(["sh", "-c", INSTALL, "install"]);
    if lacking
        .iter()
        .any(|need| matches!(need, Need::PostgresServer | Need::German))
    {
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

fn packages(lacking: &[Need]) -> Vec<&'static str> {
    lacking
        .iter()
        .flat_map(|need| need.packages())
        .copied()
        .collect()
}

/// What a person can do about it.
fn advice(lacking: &[Need], reason: &str) -> String {
    let mut lines = vec!["the tests need what is missing here:".to_owned()];
    lines.extend(lacking.iter().map(|need| format!("  - {}", need.what())));
    lines.push(format!("({reason}). Any of these helps:"));
    let packages = packages(lacking).join(" ");
    if !packages.is_empty() {
        lines.push(format!(
            "  - Debian or Ubuntu, as root: apt-get install --no-install-recommends {packages}"
        ));
    }
    lines.push("    `cargo xtask setup` as root does it without making or starting the machine's own server".into());
    if lacking.iter().any(|need| need.to_build()) {
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
    if lacking.iter().any(|need| need.for_postgres()) {
        lines.push(format!(
            "      {POSTGRES_URL}=postgres://USER:PASSWORD@HOST/DATABASE"
        ));
    }
    if lacking.contains(&Need::MariadbServer) {
        lines.push(format!(
            "      {MYSQL_URL}=mysql://USER:PASSWORD@HOST/DATABASE, or {MARIADB_URL}, or both"
        ));
    }
    lines.join("\n")
}
