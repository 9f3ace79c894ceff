//! Starting a private MariaDB or MySQL.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::cleanup_process::CleanupProcess;
use crate::database_url;
use crate::mysql_handshake;
use crate::path_lookup::{self, MysqlServer};
use crate::run;
use crate::run_dir::{RunDir, account, free_port};
use crate::server::Server;
use crate::server_role::ServerRole;

/// Settings of every private server: tests open many connections.
const SETTINGS: [&str; 2] = ["--max-connections=400", "--innodb-buffer-pool-size=256M"];
/// Further settings for data that last for one run and need not survive a crash of the machine.
const NOT_DURABLE: [&str; 2] = ["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"];

/// The settings for the server's command line.
pub(crate) fn settings(durable: bool) -> impl Iterator<Item = &'static str> {
    SETTINGS
        .into_iter()
        .chain(NOT_DURABLE.into_iter().filter(move |_| !durable))
}

/// Starts a private server, whichever of the two the machine has.
pub(crate) fn start(
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    role: ServerRole,
) -> Result<Server> {
    let found = path_lookup::mysql_server().context("there is no MariaDB or MySQL server")?;
    start_program(&found, run_dir, cleanup, role)
}

/// Starts a private server of this kind.
pub(crate) fn start_program(
    found: &MysqlServer,
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    role: ServerRole,
) -> Result<Server> {
    let account = account(&["mysql", "nobody"])?;
    let account = account.as_ref();
    // Both may run side by side.
    let name = match found {
        MysqlServer::MariaDb { .. } => role.name("mariadb"),
        MysqlServer::Mysql { .. } => role.name("mysql"),
    };
    let data = run_dir.directory(&name, account)?;
    let sockets = run_dir.directory(&format!("{name}-sockets"), account)?;
    let log = format!("{name}.log");

    // `root` without a password, over TCP too: a socket would do for this process, but not for the client libraries.
    let (program, mut install) = match found {
        MysqlServer::MariaDb {
            server, install, ..
        } => {
            let mut command = run_dir.command(install, account);
            command.args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]);
            (server, command)
        }
        MysqlServer::Mysql { server, .. } => {
            let mut command = run_dir.command(server, account);
            command.args(["--no-defaults", "--initialize-insecure"]);
            (server, command)
        }
    };
    let mut datadir = std::ffi::OsString::from("--datadir=");
    datadir.push(&data);
    let base = found
        .base()
        .map(|base| format!("--basedir={}", base.display()));
    run::output(install.args(&base).arg(&datadir))?;

    let port = free_port()?;
    let mut command = role.command(run_dir, program, account, &log)?;
    command
        .arg("--no-defaults")
        .args(&base)
        .arg(&datadir)
        .args(["--bind-address=127.0.0.1", &format!("--port={port}")]);
    command.args([
        format!("--socket={}", sockets.join("s").display()),
        format!("--pid-file={}", sockets.join("pid").display()),
    ]);
    if matches!(found, MysqlServer::Mysql { .. }) {
        // A second port, and a directory that Debian's packages make and Debian's own server uses.
        command.args(["--mysqlx=OFF", "--secure-file-priv=NULL"]);
    }
    // The data need not survive a crash, so writes need not reach the disk.
    command.args(settings(role.durable(run_dir)));
    command.args(
        role.connections()
            .map(|most| format!("--max-connections={most}")),
    );
    let server = cleanup.start_server(&mut command, Signal::SIGKILL)?;

    let title = cleanup.wait_for(server, || {
        mysql_handshake::version(&("127.0.0.1".into(), port))
    });
    let title =
        title.with_context(|| format!("the server has not started\n{}", run_dir.log(&log)))?;
    Ok(Server {
        title,
        origin: "private".into(),
        url: format!("mysql://root@127.0.0.1:{port}/mysql"),
        has_locale_de: false,
        kill: role.kill_command(run_dir, &sockets.join("pid"))?,
    })
}

/// A server that is there already.
pub(crate) fn external(url: &str, variable: &str) -> Result<Server> {
    let address =
        database_url::address(url, 3306).with_context(|| format!("{variable} names no host"))?;
    let title = mysql_handshake::version(&address)
        .with_context(|| format!("the server of {variable} does not answer"))?;
    Ok(Server {
        title,
        origin: format!("of {variable}"),
        url: url.into(),
        has_locale_de: false,
        kill: None,
    })
}
