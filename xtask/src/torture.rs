//! `cargo xtask torture`: private servers, and the program `torture` with them.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use crate::cargo::{ALL, cargo, target};
use crate::private::{RunDir, ServerRole};
use crate::release::{self, MYSQL_9, Release};
use crate::servers::{Engine, MYSQL_URL, Plan, Source};
use crate::setup::{FAKETIME, PATRONI};
use crate::{nodes, patroni, programs, run, setup};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    Postgres,
    Mariadb,
    Mysql,
    Sqlite,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cluster {
    /// Three nodes of MariaDB, all of which take writes.
    Galera,
    /// Three members with MySQL 9, one of which takes writes.
    GroupReplication,
    /// Three nodes of PostgreSQL, one of which takes writes.
    Patroni,
}

/// The options that this program knows come first.
#[derive(Args)]
pub(crate) struct TortureArguments {
    /// A single server, or SQLite.
    #[arg(long, required_unless_present = "cluster")]
    backend: Option<Backend>,
    /// A cluster.
    #[arg(long, conflicts_with = "backend")]
    cluster: Option<Cluster>,
    /// Galera of this version in place of the machine's.
    #[arg(long, requires = "cluster", value_parser = release::parser("mariadb"))]
    server: Option<&'static Release>,
    /// Builds it as programs are built for use.
    #[arg(long)]
    release: bool,
    /// Options of the program `torture`, see `cargo run -p torture -- run --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    more: Vec<String>,
}

/// `cargo xtask torture`: the exit code is that of the program.
pub(crate) fn torture(arguments: &TortureArguments) -> Result<u8> {
    let plan = setup::prepare(plan(arguments)?)?;
    // An example has cargo choose the features as it does for tests, with those of the dev-dependencies.
    let mut build = cargo("build --bin torture --example object_lock");
    let release = arguments.release.then_some("--release");
    run::succeed(build.args(ALL).args(release))?;

    let profile = release.map_or("debug", |_| "release");
    let mut command = Command::new(target()?.join(profile).join("torture"));
    command.arg("run");
    // Durable: a server that is killed must have kept what it had confirmed.
    let mut run_dir = RunDir::create(true)?;
    // PostgreSQL's clock is set in another way: see `clock.rs` of the program.
    run_dir.faketime = programs::faketime().filter(|_| plan.postgres.is_none());
    let run_dir = &run_dir;
    let role = ServerRole::Killed;
    let servers = match arguments.cluster {
        Some(Cluster::Galera) => nodes::galera(run_dir, plan.mysql[0].mysql_server()?, role)?,
        Some(Cluster::GroupReplication) => nodes::group_replication(run_dir, role)?,
        Some(Cluster::Patroni) => {
            let (nodes, switch_over) = patroni::start(run_dir)?;
            add(&mut command, "--switch-over", Some(switch_over));
            nodes
        }
        None => {
            let postgres = plan.postgres.iter().map(|it| (it, Engine::Postgres));
            let mysql = plan.mysql.iter().map(|it| (it, Engine::Mysql));
            let servers = postgres.chain(mysql);
            let opened = servers.map(|(source, engine)| source.open(engine, run_dir, role));
            opened.collect::<Result<_>>()?
        }
    };
    let cluster = arguments.cluster.and_then(|it| it.to_possible_value());
    let cluster = cluster.as_ref().map(PossibleValue::get_name);
    add(&mut command, "--cluster", cluster);
    for server in &servers {
        add(&mut command, "--url", Some(&server.url));
        add(&mut command, "--kill-server", server.kill.as_ref());
        add(&mut command, "--kill-network", server.kill_network.as_ref());
        add(&mut command, "--clock", server.clock.as_ref());
    }
    // SQLite's clock is that of the workers.
    if let (true, Some(library)) = (servers.is_empty(), &run_dir.faketime) {
        add(&mut command, "--clock", Some(run_dir.write_clock("clock")?));
        add(&mut command, "--faketime", Some(library));
    }
    command.args(&arguments.more);
    Ok(run::code(run::run(&mut command)?))
}

fn add(command: &mut Command, option: &str, value: Option<impl AsRef<OsStr>>) {
    if let Some(value) = value {
        command.arg(option).arg(value);
    }
}

/// The servers, and what else is to be installed.
fn plan(arguments: &TortureArguments) -> Result<Plan> {
    ensure!(
        arguments.server.is_none() || arguments.cluster == Some(Cluster::Galera),
        "--server is for --cluster galera"
    );
    let mut plan = Plan::default();
    match (arguments.cluster, arguments.backend) {
        (Some(Cluster::Galera), _) => plan.mysql.push(Source::private(arguments.server)),
        (Some(Cluster::GroupReplication), _) => plan.mysql.push(Source::Release(&MYSQL_9)),
        (_, Some(Backend::Mariadb)) => plan.mysql.push(Source::Private),
        (_, Some(Backend::Mysql)) => {
            let given = Source::given(MYSQL_URL);
            plan.mysql.push(given.unwrap_or(Source::Release(&MYSQL_9)));
        }
        (_, Some(Backend::Sqlite)) => {}
        (cluster, _) => {
            plan.postgres = Some(Source::Private);
            plan.others.extend(cluster.map(|_| &PATRONI));
            return Ok(plan);
        }
    }
    plan.others.push(&FAKETIME);
    Ok(plan)
}
