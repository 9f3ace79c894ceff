//! MariaDB and MySQL: private servers, and one that is there already.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::User;

use crate::cleanup::start_server;
use crate::private::{RunDir, ServerRole, account, free_port};
use crate::programs::{self, MysqlServer};
use crate::run::words;
use crate::servers::{Server, Source};
use crate::{docker, run, url};

/// Settings of every private server: tests open many connections.
pub(crate) const SETTINGS: &str = "--max-connections=400 --innodb-buffer-pool-size=256M";
/// For data that last for one run and need not survive a crash of the machine.
pub(crate) const NOT_DURABLE: &str = "--innodb-flush-log-at-trx-commit=0 --skip-log-bin";
/// A second port, and a directory that Debian's packages make and Debian's own server uses.
pub(crate) const ONLY_MYSQL: &str = "--mysqlx=OFF --secure-file-priv=NULL";

/// The settings for the server's command line.
pub(crate) fn settings(durable: bool) -> impl Iterator<Item = &'static str> {
    words(SETTINGS).chain(words(if durable { "" } else { NOT_DURABLE }))
}

/// The server of this source, after starting it.
pub(crate) fn open(source: &Source, run_dir: &RunDir, role: ServerRole) -> Result<Server> {
    match source {
        Source::Url(variable) => external(variable),
        Source::Docker(image) => docker::start_mysql(image, run_dir.durable),
        Source::Private => start(&programs::mysql()?, "private", run_dir, role),
        Source::Release(release) => {
            start(&release.mysql_server(), &release.origin(), run_dir, role)
        }
    }
}

/// The user that servers run as.
pub(crate) fn server_account() -> Result<Option<User>> {
    account(&["mysql", "nobody"])
}

impl MysqlServer {
    /// Makes a data directory, with a `root` without a password, over TCP too: a socket would do for this process, but not for
    /// the client libraries.
    pub(crate) fn create_data(
        &self,
        run_dir: &RunDir,
        name: &str,
        user: Option<&User>,
    ) -> Result<()> {
        let data = run_dir.directory(name, user)?;
        let program = self.install.as_ref().unwrap_or(&self.server);
        let mut command = run_dir.command(program, user);
        self.add_directories(&mut command, &data);
        command.args(words(if self.install.is_some() {
            "--auth-root-authentication-method=normal --skip-test-db"
        } else {
            "--initialize-insecure"
        }));
        run::output(&mut command)?;
        Ok(())
    }

    /// The first options of each command.
    pub(crate) fn add_directories(&self, command: &mut Command, data: &Path) {
        command.arg("--no-defaults");
        command.args(
            self.base
                .as_ref()
                .map(|base| format!("--basedir={}", base.display())),
        );
        command.arg(format!("--datadir={}", data.display()));
    }
}

/// Has the server listen on this port, and waits until it does. Returns its URL, its name and its version.
pub(crate) fn listen(command: &mut Command, sockets: &Path, port: u16) -> Result<(String, String)> {
    command.args([
        "--bind-address=127.0.0.1".to_owned(),
        format!("--port={port}"),
        format!("--socket={}", sockets.join(port.to_string()).display()),
        format!(
            "--pid-file={}",
            sockets.join(format!("{port}.pid")).display()
        ),
    ]);
    let url = format!("mysql://root@127.0.0.1:{port}/mysql");
    let title = start_server(command, Signal::SIGKILL, || url::mysql_version(&url))?;
    Ok((url, title))
}

/// Starts a server of this kind.
pub(crate) fn start(
    programs: &MysqlServer,
    origin: &str,
    run_dir: &RunDir,
    role: ServerRole,
) -> Result<Server> {
    let user = server_account()?;
    let user = user.as_ref();
    // Both may run side by side.
    let name = role.name(if programs.install.is_some() {
        "mariadb"
    } else {
        "mysql"
    });
    programs.create_data(run_dir, &name, user)?;
    let sockets = run_dir.directory(&format!("{name}-sockets"), user)?;
    let log = format!("{name}.log");
    let mut command = role.command(run_dir, &programs.server, user, &log)?;
    programs.add_directories(&mut command, &run_dir.path(&name));
    if programs.install.is_none() {
        command.args(words(ONLY_MYSQL));
    }
    command.args(settings(role.durable(run_dir)));
    command.args(
        role.connections()
            .map(|most| format!("--max-connections={most}")),
    );
    let port = free_port()?;
    let (url, title) = listen(&mut command, &sockets, port).with_context(|| run_dir.log(&log))?;
    Ok(Server {
        title,
        origin: origin.into(),
        url,
        has_locale_de: false,
        kill: role.kill_command(run_dir, &sockets.join(format!("{port}.pid")))?,
    })
}

/// A server that is there already.
fn external(variable: &str) -> Result<Server> {
    let url = url::required(variable)?;
    let title = url::mysql_version(&url)
        .with_context(|| format!("the server of {variable} does not answer"))?;
    Ok(Server {
        title,
        origin: format!("of {variable}"),
        url,
        has_locale_de: false,
        kill: None,
    })
}
