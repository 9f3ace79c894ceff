//! `cargo xtask torture`: a private server, and the program `torture` with it.

use std::process::Command;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::cargo::{Workspace, cargo};
use crate::cleanup_process::CleanupProcess;
use crate::clock::Clock;
use crate::database_url::{self, MYSQL_URL, without_password};
use crate::path_lookup::{self, MysqlServer};
use crate::plan::{Plan, Source};
use crate::release::Release;
use crate::run_dir::RunDir;
use crate::server::Server;
use crate::server_role::ServerRole;
use crate::{mysql, postgres, run, setup};

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
    let mysql = find_mysql(arguments.backend)?;
    setup::prepare(plan(arguments.backend))?;
    // PostgreSQL's clock is set in another way: see `clock.rs` of the program.
    let faketime = (arguments.backend != Backend::Postgres).then(path_lookup::faketime);
    if matches!(faketime, Some(None)) {
        println!("xtask: no libfaketime, so no clock is set");
    }
    let faketime = faketime.flatten();
    let mut build = cargo(["build", "--package", "torture"]);
    if arguments.release {
        build.arg("--release");
    }
    let status = run::run(&mut build)?;
    if !status.success() {
        return Ok(run::code(status));
    }

    let mut cleanup = CleanupProcess::start()?;
    // Durable: a server that is killed must have kept what it had confirmed.
    let run_dir = RunDir::create(true)?;
    let clock = faketime
        .as_deref()
        .map(|library| Clock::new(&run_dir, library));
    let clock = clock.transpose()?;
    let role = ServerRole::Torture {
        clock: clock.as_ref(),
    };
    let server = match (arguments.backend, mysql) {
        (Backend::Postgres, _) => Some(postgres::start(&run_dir, &mut cleanup, role)?),
        (Backend::Mariadb, _) => Some(mysql::start(&run_dir, &mut cleanup, role)?),
        (Backend::Mysql, Some(program)) => Some(mysql::start_program(
            &program,
            &run_dir,
            &mut cleanup,
            role,
        )?),
        (Backend::Mysql, None) => {
            println!(
                "xtask: the server of {MYSQL_URL} is not killed, and its clock is not set: it is not private"
            );
            let url = database_url::required(MYSQL_URL)?;
            Some(mysql::external(&url, MYSQL_URL)?)
        }
        (Backend::Sqlite, _) => None,
    };
    let profile = if arguments.release {
        "release"
    } else {
        "debug"
    };
    let target = Workspace::load()?.target()?;
    let mut command = Command::new(target.join(profile).join("torture"));
    command.arg("run");
    command.args(["--seconds", &arguments.seconds.to_string()]);
    if let Some(seed) = arguments.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    let given = [
        ("--faults", &arguments.faults),
        ("--sabotage", &arguments.sabotage),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            command.args([name, value]);
        }
    }
    if arguments.json {
        command.arg("--json");
    }
    add_server_options(&mut command, server.as_ref(), clock.as_ref());
    command.args(&arguments.more);
    Ok(run::code(run::run(&mut command)?))
}

/// A MySQL that is not MariaDB, to be started; `None` when there is a URL of one. Debian has none.
fn find_mysql(backend: Backend) -> Result<Option<MysqlServer>> {
    if backend != Backend::Mysql {
        return Ok(None);
    }
    match path_lookup::oracle_mysql() {
        None if database_url::from_variable(MYSQL_URL).is_none() => {
            if !Release::Mysql9.is_available() {
                bail!(
                    "there is no MySQL (a program `mysqld` in the PATH that is not MariaDB's, or Debian's packages), \
                     and {MYSQL_URL} names none"
                );
            }
            Release::Mysql9.fetch()?;
            Ok(Some(Release::Mysql9.mysql_server()))
        }
        found => Ok(found),
    }
}

/// The servers to install.
fn plan(backend: Backend) -> Plan {
    Plan {
        postgres: (backend == Backend::Postgres).then_some(Source::Private),
        mysql: if backend == Backend::Mariadb {
            vec![Source::Private]
        } else {
            Vec::new()
        },
        pgbouncer: None,
        faketime: backend != Backend::Postgres,
        browser: false,
    }
}

/// Adds the options that say where the server is and which faults it can have.
fn add_server_options(command: &mut Command, server: Option<&Server>, clock: Option<&Clock>) {
    if let Some(server) = server {
        println!(
            "xtask: {} ({}) at {}",
            server.title,
            server.origin,
            without_password(&server.url)
        );
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
