//! `cargo xtask torture`: a private server, and the program `torture` with it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::cargo::{ALL, cargo, target};
use crate::private::{Clock, RunDir, ServerRole};
use crate::release::Release;
use crate::run::words;
use crate::servers::{Plan, Server, Source};
use crate::{mysql, postgres, programs, run, setup, url};

/// What is tortured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    Postgres,
    Mariadb,
    Mysql,
    Sqlite,
}

/// The options that this program knows; others go after `--`, see `cargo run -p torture -- run --help`.
#[derive(Args)]
pub(crate) struct TortureArguments {
    /// What is tortured.
    #[arg(long)]
    backend: Backend,
    /// For how long faults happen.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What decides about faults and tasks; drawn and printed when it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these kinds of faults, separated by commas; `none` for none.
    #[arg(long)]
    faults: Option<String>,
    /// Breaks one thing in the workers: the check has to find it.
    #[arg(long)]
    sabotage: Option<String>,
    /// Builds it as programs are built for use.
    #[arg(long)]
    release: bool,
    /// Ends with one line of JSON.
    #[arg(long)]
    json: bool,
    /// Further options of the program `torture`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// `cargo xtask torture`: the exit code is that of the program.
pub(crate) fn torture(arguments: &TortureArguments) -> Result<u8> {
    let backend = arguments.backend;
    let plan = setup::prepare(plan(backend)?)?;
    if plan.faketime && programs::faketime().is_none() {
        println!("xtask: no libfaketime, so no clock is set");
    }
    // An example has cargo choose the features as it does for tests, with those of the dev-dependencies.
    let mut build = cargo(words("build --bin torture --example object_lock"));
    build
        .args(ALL)
        .args(arguments.release.then_some("--release"));
    let status = run::run(&mut build)?;
    if !status.success() {
        return Ok(run::code(status));
    }

    // Durable: a server that is killed must have kept what it had confirmed.
    let run_dir = RunDir::create(true)?;
    let library = programs::faketime().filter(|_| plan.faketime);
    let clock = library
        .map(|library| Clock::new(&run_dir, library))
        .transpose()?;
    let role = ServerRole::Torture {
        clock: clock.as_ref(),
    };
    let server = match (plan.postgres, plan.mysql.first()) {
        (Some(postgres), _) => Some(postgres::open(&postgres, &run_dir, role)?),
        (_, Some(Source::Private)) if backend == Backend::Mysql => {
            let programs = programs::oracle_mysql().context("there is no MySQL server")?;
            Some(mysql::start(&programs, "private", &run_dir, role)?)
        }
        (_, Some(mysql)) => Some(mysql::open(mysql, &run_dir, role)?),
        _ => None,
    };
    let profile = if arguments.release {
        "release"
    } else {
        "debug"
    };
    let mut command = Command::new(target()?.join(profile).join("torture"));
    command.args(["run", "--seconds", &arguments.seconds.to_string()]);
    for (name, value) in [
        ("--seed", &arguments.seed.map(|seed| seed.to_string())),
        ("--faults", &arguments.faults),
        ("--sabotage", &arguments.sabotage),
    ] {
        if let Some(value) = value {
            command.args([name, value]);
        }
    }
    command.args(arguments.json.then_some("--json"));
    add_server_options(&mut command, server.as_ref(), clock.as_ref());
    command.args(&arguments.more);
    Ok(run::code(run::run(&mut command)?))
}

/// The server, and what else is to be installed.
fn plan(backend: Backend) -> Result<Plan> {
    let mysql = match backend {
        Backend::Mariadb => Some(Source::Private),
        Backend::Mysql => Some(mysql_source()?),
        Backend::Postgres | Backend::Sqlite => None,
    };
    Ok(Plan {
        postgres: (backend == Backend::Postgres).then_some(Source::Private),
        mysql: mysql.into_iter().collect(),
        // PostgreSQL's clock is set in another way: see `clock.rs` of the program.
        faketime: backend != Backend::Postgres,
        ..Plan::default()
    })
}

/// A MySQL that is not MariaDB. Debian has none.
fn mysql_source() -> Result<Source> {
    if programs::oracle_mysql().is_some() {
        return Ok(Source::Private);
    }
    let variable = url::MYSQL;
    if url::from_variable(variable).is_some() {
        println!(
            "xtask: the server of {variable} is not killed, and its clock is not set: it is not private"
        );
        return Ok(Source::Url(variable));
    }
    if !Release::Mysql9.unpacked().is_available() {
        bail!(
            "there is no MySQL (a program `mysqld` in the PATH that is not MariaDB's, or Debian's packages), and \
             {variable} names none"
        );
    }
    Ok(Source::Release(Release::Mysql9))
}

/// Adds the options that say where the server is and which faults it can have.
fn add_server_options(command: &mut Command, server: Option<&Server>, clock: Option<&Clock>) {
    if let Some(server) = server {
        server.print();
        command.args(["--url", &server.url]);
        if let Some(kill) = &server.kill {
            command.arg("--kill-server").arg(kill);
        }
    }
    let Some(clock) = clock else {
        return;
    };
    // The clock of a server that is not private can't be set.
    if server.is_none_or(|server| server.kill.is_some()) {
        command.arg("--clock").arg(&clock.file);
    }
    if server.is_none() {
        command.arg("--faketime").arg(&clock.library);
    }
}
