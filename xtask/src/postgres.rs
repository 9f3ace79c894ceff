//! Private servers of PostgreSQL, which speak German when asked to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::private::{PrivateServer, RunDir, ServerRole, free_ports};
use crate::run::words;
use crate::servers::Server;
use crate::{programs, run};

/// Settings of every private server: tests open many connections.
const SETTINGS: &str =
    "-c max_connections=300 -c max_prepared_transactions=10 -c shared_buffers=256MB";
/// For tests, whose data need not survive a crash of the machine, and which bring about many deadlocks.
const NOT_DURABLE: &str = " -c fsync=off -c deadlock_timeout=50ms";
/// What the German locale is made of, from Debian's package `locales`.
const LOCALE_SOURCE: &str = "/usr/share/i18n/locales/de_DE";
/// The directory of the locale, in that of the run.
const LOCALES: &str = "locales";

pub(crate) fn settings(durable: bool) -> impl Iterator<Item = &'static str> {
    words(SETTINGS).chain(words(if durable { "" } else { NOT_DURABLE }))
}

pub(crate) fn start(programs: &Path, run_dir: &RunDir, role: ServerRole) -> Result<Server> {
    let [port] = free_ports()?;
    let server = PrivateServer::new(run_dir, role, format!("postgres-{port}"));
    let data = run_dir.directory(&server.name)?;
    let mut initdb = run_dir.command(&programs.join("initdb"));
    initdb.args(words(
        "--auth=trust --username=postgres --locale=C --encoding=UTF8 --no-sync --pgdata",
    ));
    // Killed, it would leave a piece of shared memory behind.
    run::uninterrupted_output(initdb.arg(&data))?;
    let locales = run_dir.path(LOCALES);
    if !locales.exists() {
        create_locale(&locales)?;
    }
    let started = listen(&server, programs, port)?;
    ensure!(
        started.has_locale_de,
        "the private PostgreSQL does not speak German, which a test needs"
    );
    Ok(started)
}

/// Starts the server, which has its data, on this port.
fn listen(server: &PrivateServer, programs: &Path, port: u16) -> Result<Server> {
    let data = server.run_dir.path(&server.name);
    let mut command = server.command(&programs.join("postgres"));
    command.arg("-D").arg(&data);
    command.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    command.args(["-c", "unix_socket_directories="]);
    command.args(settings(server.durable()));
    let connections = server.role.connections();
    command.args(connections.map(|most| format!("-cmax_connections={most}")));
    command.env("LOCPATH", server.run_dir.path(LOCALES));
    // Its immediate shutdown, which also ends the processes of the connections: they are in no group with the server.
    let stop = Signal::SIGQUIT;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let pid_files = [data.join("postmaster.pid")];
    let psql = || psql(programs.join("psql"), &url);
    start_server(server, &mut command, stop, &pid_files, &url, psql)
}

/// Starts the server by its command, and asks it by psql what it is and whether it speaks German.
pub(crate) fn start_server(
    server: &PrivateServer,
    command: &mut Command,
    stop: Signal,
    pid_files: &[PathBuf],
    url: &str,
    psql: impl Fn() -> Command,
) -> Result<Server> {
    let mut started = server.start(command, stop, pid_files, url, || title(psql()))?;
    started.has_locale_de = speaks_german(psql())?;
    Ok(started)
}

/// Starts a hot standby of a private server.
pub(crate) fn start_standby(run_dir: &RunDir, primary: &Server) -> Result<Server> {
    let programs = programs::postgres()?;
    let server = PrivateServer::new(run_dir, ServerRole::Regular, "standby");
    let data = run_dir.directory(&server.name)?;
    let mut copy = run_dir.command(&programs.join("pg_basebackup"));
    copy.args(words("--write-recovery-conf --checkpoint=fast --no-sync"));
    run::output(copy.args(["--dbname", &primary.url, "--pgdata"]).arg(&data))?;
    let [port] = free_ports()?;
    listen(&server, &programs, port)
}

/// The name and version of a server that is there already. It sends its version after a login only, so psql asks for it: without
/// psql the version is not shown.
pub(crate) fn external_title(url: &str) -> Result<String> {
    let unknown = || Ok("PostgreSQL of unknown version".to_owned());
    programs::find("psql").map_or_else(unknown, |program| title(psql(program, url)))
}

/// The name and version of the server that psql connects to.
pub(crate) fn title(mut psql: Command) -> Result<String> {
    let printed = run::output(psql.args(["-c", "SHOW server_version"]))?;
    let version = words(&printed).next().unwrap_or_default();
    Ok(format!("PostgreSQL {version}"))
}

/// Whether the server that psql connects to can speak German: a test has to see that errors are recognised whichever language the
/// server speaks.
fn speaks_german(mut psql: Command) -> Result<bool> {
    psql.args(["-c", "SET lc_messages = 'de_DE.UTF-8'", "-c", "SELECT 1/0"]);
    Ok(run::errors(&mut psql)?.contains("Division durch Null"))
}

pub(crate) fn psql(program: PathBuf, url: &str) -> Command {
    let mut command = Command::new(program);
    command.args(words("--no-psqlrc --no-password -At -d"));
    command.arg(url).env("PGCONNECT_TIMEOUT", "5");
    command
}

pub(crate) fn can_create_locale() -> bool {
    programs::find("localedef").is_some() && Path::new(LOCALE_SOURCE).exists()
}

/// Makes a German locale in `directory`, which is then what `LOCPATH` has to name.
fn create_locale(directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    let localedef = programs::find("localedef").context("there is no localedef")?;
    let made = directory.join("de_DE.UTF-8");
    let mut localedef = Command::new(localedef);
    localedef.args(words("-i de_DE -f UTF-8")).arg(&made);
    // Its exit code is that of an error for warnings too.
    let errors = run::errors(&mut localedef)?;
    ensure!(
        made.join("LC_MESSAGES").exists(),
        "localedef has not made {}: {errors}",
        made.display()
    );
    Ok(())
}

/// Whether the German messages of the PostgreSQL in this directory are installed.
pub(crate) fn has_german(directory: &Path) -> bool {
    // `postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`
    let version = programs::version(&directory.join("postgres")).unwrap_or_default();
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let major = numbers.find(|it| !it.is_empty()).unwrap_or_default();
    let file = format!("de/LC_MESSAGES/postgres-{major}.mo");
    let own = run::output(Command::new(directory.join("pg_config")).arg("--localedir"));
    let own = own.unwrap_or_else(|_| "/usr/share/locale".to_owned());
    // Ubuntu moves translations into packages and a directory of their own.
    let locales = [own.trim(), "/usr/share/locale-langpack"];
    locales
        .map(|it| Path::new(it).join(&file).exists())
        .contains(&true)
}
