//! Starting a private MariaDB or MySQL.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::greeting;
use crate::guard::Guard;
use crate::programs::{self, MysqlServer};
use crate::purpose::Purpose;
use crate::run;
use crate::servers::Server;
use crate::workplace::{Workplace, account, free_port};

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
pub(crate) fn start(workplace: &Workplace, guard: &mut Guard, purpose: Purpose) -> Result<Server> {
    let found = programs::mysql_server().context("there is no MariaDB or MySQL server")?;
    start_program(&found, workplace, guard, purpose)
}

/// Starts a private server of this kind.
pub(crate) fn start_program(
    found: &MysqlServer,
    workplace: &Workplace,
    guard: &mut Guard,
    purpose: Purpose,
) -> Result<Server> {
    let account = account(&["mysql", "nobody"])?;
    let account = account.as_ref();
    let data = workplace.directory(&purpose.name("mysql"), account)?;
    let sockets = workplace.directory(&purpose.name("mysql-sockets"), account)?;
    let log = purpose.name("mysql.log");

    // `root` without a password, over TCP too: a socket would do for this process, but not for the client libraries.
    let (program, mut install) = match found {
        MysqlServer::MariaDb {
            server, install, ..
        } => {
            let mut command = workplace.command(install, account);
            command.args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]);
            (server, command)
        }
        MysqlServer::Mysql { server, .. } => {
            let mut command = workplace.command(server, account);
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
    let mut command = workplace.server(program, account, &log, purpose)?;
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
    // Nobody will miss the data, so it need not take its time to write them.
    command.args(settings(purpose.durable(workplace)));
    command.args(
        purpose
            .connections()
            .map(|most| format!("--max-connections={most}")),
    );
    let server = guard.start_server(&mut command, Signal::SIGKILL)?;

    let title = guard.wait_for(server, || {
        greeting::mysql_version(&("127.0.0.1".into(), port))
    });
    let title =
        title.with_context(|| format!("the server has not started\n{}", workplace.log(&log)))?;
    Ok(Server {
        title,
        origin: "private".into(),
        url: format!("mysql://root@127.0.0.1:{port}/mysql"),
        german: false,
        kill: purpose.kill_command(workplace, &sockets.join("pid"))?,
    })
}

/// A server that is there already.
pub(crate) fn external(url: &str, variable: &str) -> Result<Server> {
    let address =
        greeting::address(url, 3306).with_context(|| format!("{variable} names no host"))?;
    let title = greeting::mysql_version(&address)
        .with_context(|| format!("the server of {variable} does not answer"))?;
    Ok(Server {
        title,
        origin: format!("of {variable}"),
        url: url.into(),
        german: false,
        kill: None,
    })
}
