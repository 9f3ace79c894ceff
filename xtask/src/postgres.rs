//! Starting a private PostgreSQL, and asking one its version.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cleanup_process::CleanupProcess;
use crate::database_url;
use crate::locale_de;
use crate::path_lookup;
use crate::run;
use crate::run_dir::{RunDir, account, free_port};
use crate::server::Server;
use crate::server_role::ServerRole;

/// Settings of every private server: tests open many connections.
const SETTINGS: [&str; 3] = [
    "max_connections=300",
    "max_prepared_transactions=10",
    "shared_buffers=256MB",
];

/// The settings for the server's command line.
pub(crate) fn settings(durable: bool) -> impl Iterator<Item = &'static str> {
    // Data that last for one run need not survive a crash of the machine.
    SETTINGS
        .into_iter()
        .chain((!durable).then_some("fsync=off"))
        .flat_map(|setting| ["-c", setting])
}

/// Starts a private server that speaks German when asked to, of the machine's newest version.
pub(crate) fn start(
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    role: ServerRole,
) -> Result<Server> {
    let programs = path_lookup::postgres_directory().context("there is no PostgreSQL server")?;
    start_program(&programs, run_dir, cleanup, role)
}

/// Starts a server with the programs of this directory.
pub(crate) fn start_program(
    programs: &Path,
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    role: ServerRole,
) -> Result<Server> {
    let account = account(&["postgres", "nobody"])?;
    let account = account.as_ref();
    let data = run_dir.directory(&role.name("postgres"), account)?;
    let sockets = run_dir.directory(&role.name("postgres-sockets"), account)?;
    let log = role.name("postgres.log");
    let locales = run_dir.path(&role.name("locales"));
    locale_de::create_locale(&locales)?;

    let mut initdb = run_dir.command(&programs.join("initdb"), account);
    initdb.args([
        "--auth=trust",
        "--username=postgres",
        "--locale=C",
        "--encoding=UTF8",
        "--no-sync",
        "--pgdata",
    ]);
    // Killed, it would leave a piece of shared memory behind.
    run::uninterrupted_output(initdb.arg(&data))?;

    let port = free_port()?;
    let program = programs.join("postgres");
    let mut command = role.command(run_dir, &program, account, &log)?;
    command.arg("-D").arg(&data).arg("-k").arg(&sockets).args([
        "-p",
        &port.to_string(),
        "-c",
        "listen_addresses=127.0.0.1",
    ]);
    command
        .args(settings(role.durable(run_dir)))
        .args(
            role.connections()
                .map(|most| format!("-cmax_connections={most}")),
        )
        .env("LOCPATH", &locales);
    // Its immediate shutdown, which also ends the processes of the connections: they are in no group with the server.
    let server = cleanup.start_server(&mut command, Signal::SIGQUIT)?;

    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let version = cleanup.wait_for(server, || version(&programs.join("psql"), &url));
    let version =
        version.with_context(|| format!("PostgreSQL has not started\n{}", run_dir.log(&log)))?;
    let (_, _, errors) = run::capture(
        psql(&programs.join("psql"), &url)
            .args(locale_de::QUERY.iter().flat_map(|query| ["-c", query])),
    )?;
    if !errors.contains(locale_de::EXPECTED_MESSAGE) {
        bail!(
            "the private PostgreSQL does not speak German, which a test needs; it said: {}",
            errors.trim_end()
        );
    }
    Ok(Server {
        title: format!("PostgreSQL {version}"),
        origin: "private".into(),
        url,
        has_locale_de: true,
        kill: role.kill_command(run_dir, &data.join("postmaster.pid"))?,
    })
}

/// Starts a hot standby of a private server; the answer is its URL.
pub(crate) fn start_standby(
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    primary: &Server,
) -> Result<String> {
    let programs = path_lookup::postgres_directory().context("there is no PostgreSQL server")?;
    let account = account(&["postgres", "nobody"])?;
    let account = account.as_ref();
    let data = run_dir.directory("standby", account)?;
    let mut copy = run_dir.command(&programs.join("pg_basebackup"), account);
    copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
        .args(["--dbname", &primary.url, "--pgdata"]);
    run::output(copy.arg(&data))?;
    let port = free_port()?;
    let log = "standby.log";
    let program = programs.join("postgres");
    let mut command = ServerRole::Regular.command(run_dir, &program, account, log)?;
    command
        .arg("-D")
        .arg(&data)
        .args(["-c", "unix_socket_directories="])
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(settings(false));
    let server = cleanup.start_server(&mut command, Signal::SIGQUIT)?;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    cleanup
        .wait_for(server, || version(&programs.join("psql"), &url))
        .with_context(|| format!("the standby has not started\n{}", run_dir.log(log)))?;
    Ok(url)
}

/// A server that is there already.
pub(crate) fn external(url: &str, variable: &str) -> Result<Server> {
    if let Some(address) = database_url::address(url, 5432) {
        database_url::connect(&address)
            .with_context(|| format!("the server of {variable} does not answer"))?;
    }
    // The server sends its version after a login only, so psql asks for it. Without psql the version is not shown.
    let version = path_lookup::find("psql").and_then(|psql| version(&psql, url).ok());
    Ok(Server {
        title: format!(
            "PostgreSQL {}",
            version.as_deref().unwrap_or("of unknown version")
        ),
        origin: format!("of {variable}"),
        url: url.into(),
        has_locale_de: false,
        kill: None,
    })
}

/// The version of the server that `url` names.
fn version(program: &Path, url: &str) -> Result<String> {
    let printed = run::output(psql(program, url).args(["-c", "SHOW server_version"]))?;
    Ok(printed
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}

fn psql(program: &Path, url: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--no-psqlrc", "--no-password", "-At", "-d", url])
        .env("PGCONNECT_TIMEOUT", "5");
    command
}
