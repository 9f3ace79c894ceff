//! Private servers of PostgreSQL, which speak German when asked to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
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
    run::uninterrupted(initdb.arg(&data).stdout(Stdio::null()))?;
    let locales = run_dir.path(LOCALES);
    if !locales.exists() {
        fs::create_dir(&locales)?;
        let mut localedef = run::command("localedef -i de_DE -f UTF-8");
        // Its exit code is that of an error for warnings too.
        run::errors(localedef.arg(locales.join("de_DE.UTF-8")))?;
    }
    listen(&server, programs, port)
}

/// Starts the server, which has its data, on this port.
fn listen(server: &PrivateServer, programs: &Path, port: u16) -> Result<Server> {
    let data = server.run_dir.path(&server.name);
    let mut command = server.command(&programs.join("postgres"))?;
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
    server.start(&mut command, stop, &url, || {
        title(psql(programs.join("psql"), &url))
    })
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

/// The name and version of the server that psql connects to.
pub(crate) fn title(mut psql: Command) -> Result<String> {
    let printed = run::output(psql.args(["-c", "SHOW server_version"]))?;
    let version = words(&printed).next().unwrap_or_default();
    Ok(format!("PostgreSQL {version}"))
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

/// Whether the German messages of the PostgreSQL in this directory are installed.
pub(crate) fn has_german(directory: &Path) -> bool {
    // `postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`
    let version = programs::version(&directory.join("postgres")).unwrap_or_default();
    let major = words(&version).nth(2).and_then(|it| it.split('.').next());
    let major = major.unwrap_or_default();
    let file = format!("de/LC_MESSAGES/postgres-{major}.mo");
    let own = run::output(Command::new(directory.join("pg_config")).arg("--localedir"));
    let own = own.unwrap_or_else(|_| "/usr/share/locale".to_owned());
    // Ubuntu moves translations into packages and a directory of their own.
    let locales = [own.trim(), "/usr/share/locale-langpack"];
    let mut files = locales.iter().map(|it| Path::new(it).join(&file));
    files.any(|it| it.exists())
}
