//! Private servers of MariaDB and MySQL.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;

use crate::private::{PrivateServer, RunDir, ServerRole, free_ports};
use crate::programs::MysqlServer;
use crate::run::{self, words};
use crate::servers::Server;

/// Settings of every private server: tests open many connections.
const SETTINGS: &str = "--max-connections=400 --innodb-buffer-pool-size=256M";
/// For data that last for one run and need not survive a crash of the machine.
pub(crate) const NOT_DURABLE: &str = "--innodb-flush-log-at-trx-commit=0 --skip-log-bin";
/// A second port, and a directory that Debian's packages make and Debian's own server uses.
const ONLY_MYSQL: &str = "--mysqlx=OFF --secure-file-priv=NULL";
/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn settings(durable: bool) -> impl Iterator<Item = &'static str> {
    words(SETTINGS).chain(words(if durable { "" } else { NOT_DURABLE }))
}

pub(crate) fn start(programs: &MysqlServer, run_dir: &RunDir, role: ServerRole) -> Result<Server> {
    let [port] = free_ports()?;
    let server = PrivateServer::new(run_dir, role, format!("mysql-{port}"));
    programs.create_data(run_dir, &server.name)?;
    let options = match role {
        ServerRole::Crash => "--innodb-rollback-on-timeout=ON",
        _ if server.durable() => "",
        _ => NOT_DURABLE,
    };
    programs.start(&server, port, options)
}

impl MysqlServer {
    /// Makes a data directory, with a `root` without a password, over TCP too: a socket would do for this process, but not for
    /// the client libraries.
    pub(crate) fn create_data(&self, run_dir: &RunDir, name: &str) -> Result<()> {
        let data = run_dir.directory(name)?;
        let program = self.install.as_ref().unwrap_or(&self.server);
        let mut command = run_dir.command(program);
        self.add_directories(&mut command, &data);
        command.args(words(if self.is_mariadb() {
            "--auth-root-authentication-method=normal --skip-test-db"
        } else {
            "--initialize-insecure"
        }));
        run::output(&mut command)?;
        Ok(())
    }

    fn add_directories(&self, command: &mut Command, data: &Path) {
        command.arg("--no-defaults");
        let base = self.base.as_ref();
        command.args(base.map(|it| format!("--basedir={}", it.display())));
        command.arg(format!("--datadir={}", data.display()));
    }

    /// Starts the server with its data. The options come after those of every server.
    pub(crate) fn start(&self, server: &PrivateServer, port: u16, options: &str) -> Result<Server> {
        let data = server.run_dir.path(&server.name);
        let mut command = server.command(&self.server)?;
        self.add_directories(&mut command, &data);
        command.args(words(SETTINGS));
        if !self.is_mariadb() {
            command.args(words(ONLY_MYSQL));
            // What is unpacked looks for its plugins where Debian installs them.
            let base = self.base.as_ref();
            command.args(base.map(|it| format!("--plugin-dir={}/lib/mysql/plugin", it.display())));
        }
        command.args(words(options));
        let connections = server.role.connections();
        command.args(connections.map(|most| format!("--max-connections={most}")));
        command.arg("--bind-address=127.0.0.1");
        command.arg(format!("--port={port}"));
        command.arg(format!("--socket={}/socket", data.display()));
        let url = format!("mysql://root@127.0.0.1:{port}/mysql");
        server.start(&mut command, Signal::SIGKILL, &url, || title(port))
    }
}

/// The name and version of the server on this port. The first packet on a new connection has them and needs no login.
pub(crate) fn title(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut packet = [0; 100];
    let length = stream.read(&mut packet)?;
    let packet = &packet[..length];
    // Three bytes of length, one of sequence; then that of the protocol version, unless the server refuses; then the version in text:
    // `5.5.5-10.11.19-MariaDB-0+deb12u1`, or `8.4.6-1`. The `5.5.5-` is there for the sake of old replicas.
    ensure!(
        packet.get(4) == Some(&10),
        "{}",
        String::from_utf8_lossy(packet)
    );
    let version = packet[5..].split(|&byte| byte == 0).next();
    let version = String::from_utf8_lossy(version.unwrap_or_default());
    let number = version.trim_start_matches("5.5.5-").split('-').next();
    let is_mariadb = version.contains("MariaDB");
    let name = if is_mariadb { "MariaDB" } else { "MySQL" };
    Ok(format!("{name} {}", number.unwrap_or_default()))
}
