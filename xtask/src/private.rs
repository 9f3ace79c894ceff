//! What private servers have in common: the directory of a run, with their data, sockets and logs, and what each is for.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};

use crate::servers::Server;
use crate::{cleanup, run};

/// How many lines of a log are shown when its server has failed.
const LOG_LINES: usize = 20;

/// Where Linux has files in memory.
const MEMORY: &str = "/dev/shm";
/// Whether servers, and the programs that kill them, can be there: what they need, with some to spare, is in kB.
/// Ubuntu's `AppArmor` lets its MySQL use no files there.
const MEMORY_HAS_ROOM: &str = "\
    room=6000000
    ! [ -e /etc/apparmor.d/usr.sbin.mysqld ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts &&
    [ $(sed -n 's/^MemAvailable: *\\([0-9]*\\).*/\\1/p' /proc/meminfo) -gt $room ] &&
    [ $(df -k --output=avail /dev/shm | tail -n 1) -gt $room ]";

/// Starts a server in the directory `$0` with the options `$1`.
const ONCE: &str = r#"first=$1; shift 2; cd "$0" && exec "$@" $first"#;
/// And again whenever it ends, with the options that `$2` prints. The delay lets what is left of the last one go.
const AGAIN: &str = r#"options=$1 recover=$2; shift 2
while :; do (cd "$0" && exec "$@" $options); sleep 0.2; options=$(eval "$recover"); done"#;

/// The directory of a run. The clean-up process removes it.
pub(crate) struct RunDir {
    directory: PathBuf,
    /// Runs the servers when this process is root's, which servers refuse to be.
    nobody: Option<User>,
    /// Whether the servers are to survive a crash of the machine, as they would elsewhere.
    pub(crate) durable: bool,
    /// The library that sets the clocks of the servers that are killed.
    pub(crate) faketime: Option<PathBuf>,
}

impl RunDir {
    pub(crate) fn create(durable: bool) -> Result<Self> {
        // Not `TMPDIR`: the path of a Unix socket has 107 characters at most. In memory being durable means nothing.
        let parent = if durable {
            "/var/tmp"
        } else if run::succeeds(MEMORY_HAS_ROOM) {
            MEMORY
        } else {
            "/tmp"
        };
        let mut builder = tempfile::Builder::new();
        let directory = builder.prefix("diesel-locks-").tempdir_in(parent)?.keep();
        let directory = fs::canonicalize(directory)?;
        cleanup::register("directory", directory.display());
        let nobody = if geteuid().is_root() {
            let user = User::from_name("nobody")?;
            Some(user.context("servers do not run as root, and there is no user nobody")?)
        } else {
            None
        };
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        Ok(Self {
            directory,
            nobody,
            durable,
            faketime: None,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A directory in which servers may write, made unless it is there.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&path)?;
        self.give(&path)?;
        Ok(path)
    }

    /// Writes a file that the servers may read, or run as a program.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// A file with the time of the machine, from which libfaketime sets a clock.
    pub(crate) fn write_clock(&self, name: &str) -> Result<PathBuf> {
        self.write(name, "+0s\n")
    }

    /// A program that kills, stops or continues the processes that work in this directory.
    pub(crate) fn write_kill_program(&self, name: &str) -> Result<PathBuf> {
        let directory = self.path(name);
        let script = format!("#!/bin/sh\nset -- '{}' \"$@\"\n{KILL}", directory.display());
        self.write(&format!("kill-{name}"), &script)
    }

    /// Makes it the servers' own.
    fn give(&self, path: &Path) -> io::Result<()> {
        match &self.nobody {
            Some(user) => chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
            None => Ok(()),
        }
    }

    /// A command of a server, without the settings that the caller has for other servers.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory);
        run::remove_variables(&mut command, &["PG", "MYSQL_", "LC_", "LANG", "TMPDIR"]);
        if let Some(user) = &self.nobody {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

/// The end of the log of a server, for an error.
fn end_of(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    format!("the server has not started\n{end}")
}

/// Ports, all different, on which no process listens.
pub(crate) fn free_ports<const COUNT: usize>() -> io::Result<[u16; COUNT]> {
    let listen = |_| TcpListener::bind(("127.0.0.1", 0));
    let listeners: Vec<_> = (0..COUNT).map(listen).collect::<io::Result<_>>()?;
    let mut ports = [0; COUNT];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// How many connections a server has that is killed: few, so that it can run out of them.
pub(crate) const FEW_CONNECTIONS: u32 = 100;

/// What a private server is for.
#[derive(Clone, Copy)]
pub(crate) enum ServerRole {
    /// Used by tests and never killed.
    Regular,
    /// Killed by a test with `kill -9`: it is durable, starts again, and has few connections.
    Killed,
    /// As `Killed`. MySQL and MariaDB have `innodb_rollback_on_timeout`, for a test of time-outs.
    Crash,
}

impl ServerRole {
    pub(crate) fn is_killed(self) -> bool {
        !matches!(self, Self::Regular)
    }

    /// The limit on connections, if it differs from the usual one.
    pub(crate) fn connections(self) -> Option<u32> {
        self.is_killed().then_some(FEW_CONNECTIONS)
    }
}

/// A server that is to be started here.
pub(crate) struct PrivateServer<'a> {
    pub(crate) run_dir: &'a RunDir,
    pub(crate) role: ServerRole,
    /// Of its log and its directory.
    pub(crate) name: String,
    /// Options with which it is started for the first time, separated by spaces.
    pub(crate) first: String,
    /// A command of the shell that prints the options with which `"$@"` is started again.
    pub(crate) recover: &'static str,
}

impl<'a> PrivateServer<'a> {
    pub(crate) fn new(run_dir: &'a RunDir, role: ServerRole, name: impl Into<String>) -> Self {
        Self {
            run_dir,
            role,
            name: name.into(),
            first: String::new(),
            recover: "",
        }
    }

    /// Whether it is to keep what was committed when it is killed, or the machine crashes.
    pub(crate) fn durable(&self) -> bool {
        self.role.is_killed() || self.run_dir.durable
    }

    /// The command that runs this program as the server.
    pub(crate) fn command(&self, program: &Path) -> Result<Command> {
        let directory = self.run_dir.directory(&self.name)?;
        let script = if self.role.is_killed() { AGAIN } else { ONCE };
        let mut shell = self.run_dir.command(Path::new("/bin/sh"));
        shell.args(["-c", script]).arg(directory);
        shell.args([&self.first, self.recover]).arg(program);
        Ok(shell)
    }

    /// Starts the server by its command, and waits until `title` finds its name and version. It is ended with `stop`.
    pub(crate) fn start(
        &self,
        command: &mut Command,
        stop: Signal,
        url: &str,
        title: impl Fn() -> Result<String>,
    ) -> Result<Server> {
        let Self { run_dir, name, .. } = self;
        let mut server = Server {
            url: url.to_owned(),
            ..Server::default()
        };
        if self.role.is_killed() {
            server.kill = Some(run_dir.write_kill_program(name)?);
            if let Some(library) = &run_dir.faketime {
                let clock = run_dir.write_clock(&format!("{name}-clock"))?;
                command
                    .env("LD_PRELOAD", library)
                    .env("FAKETIME_TIMESTAMP_FILE", &clock)
                    // The seconds for which the server uses what it has read. Without it, the server reads at every call.
                    .env("FAKETIME_CACHE_DURATION", "1")
                    // Waits are measured by the monotonic clock.
                    .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                server.clock = Some(clock);
            }
        }
        let path = run_dir.path(&format!("{name}.log"));
        let log = File::create(&path)?;
        // Ubuntu's AppArmor lets MySQL write to its own files only.
        run_dir.give(&path)?;
        command.stdout(log.try_clone()?).stderr(log);
        let title = cleanup::start_server(command, stop, title);
        server.title = title.with_context(|| end_of(&path))?;
        Ok(server)
    }
}

/// Kills, stops or continues processes.
pub(crate) const KILL: &str = include_str!("kill.sh");
