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

/// Where Linux has files in memory, and what servers need of it, with some to spare, in kB.
const MEMORY: &str = "/dev/shm";
const ROOM: u64 = 6 << 20;

/// Restarts a server whenever it ends. The delay lets what is left of the last one go.
const RESTART_LOOP: &str = "while :; do \"$@\"; sleep 0.2; done";

/// The directory of a run. The clean-up process removes it.
pub(crate) struct RunDir {
    directory: PathBuf,
    /// Runs the servers when this process is root's, which servers refuse to be.
    nobody: Option<User>,
    /// Whether the servers are to survive a crash of the machine, as they would elsewhere.
    pub(crate) durable: bool,
}

impl RunDir {
    pub(crate) fn create(durable: bool) -> Result<Self> {
        // Not `TMPDIR`: the path of a Unix socket has 107 characters at most. In memory being durable means nothing.
        let parent = if durable {
            "/var/tmp"
        } else if memory_has_room() {
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
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A directory in which servers may write, made unless it is there.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        self.give(&path)?;
        Ok(path)
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

    /// The end of the log of the server `name`, for an error.
    pub(crate) fn log(&self, name: &str) -> String {
        let log = fs::read(self.path(&format!("{name}.log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("the server has not started\n{end}")
    }
}

/// Whether servers, and the programs that start and kill them, can be in memory.
fn memory_has_room() -> bool {
    // Ubuntu's AppArmor lets its MySQL use no files there.
    if Path::new("/etc/apparmor.d/usr.sbin.mysqld").exists() {
        return false;
    }
    let line_with = |path, part: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .find(|line| line.contains(part))
            .map(str::to_owned)
    };
    let memory = line_with("/proc/meminfo", "MemAvailable:").unwrap_or_default();
    let mut df = Command::new("df");
    let space = run::output(df.args(["-k", "--output=avail", MEMORY])).unwrap_or_default();
    let kilobytes = |text: &str| text.split_whitespace().find_map(|word| word.parse().ok());
    let mount = line_with("/proc/mounts", &format!(" {MEMORY} "));
    kilobytes(&memory) > Some(ROOM)
        && kilobytes(&space) > Some(ROOM)
        && mount.is_some_and(|mount| !mount.contains("noexec"))
}

pub(crate) fn free_port() -> io::Result<u16> {
    Ok(free_ports::<1>()?[0])
}

/// Several ports, all different, on which no process listens.
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
pub(crate) enum ServerRole<'a> {
    /// Used by tests and never killed.
    Regular,
    /// Killed by a test with `kill -9`: it is durable, starts again, and has few connections. This library sets its clock.
    Killed { faketime: Option<&'a Path> },
    /// As `Killed`, with the clock of the machine. MySQL and MariaDB have `innodb_rollback_on_timeout`, for a test of time-outs.
    Crash,
}

impl ServerRole<'_> {
    pub(crate) fn is_killed(self) -> bool {
        !matches!(self, Self::Regular)
    }

    /// The limit on connections, if it differs from the usual one.
    pub(crate) fn connections(self) -> Option<u32> {
        self.is_killed().then_some(FEW_CONNECTIONS)
    }
}

/// A server that is to be started here.
#[derive(Clone, Copy)]
pub(crate) struct PrivateServer<'a> {
    pub(crate) run_dir: &'a RunDir,
    pub(crate) role: ServerRole<'a>,
    /// Of its log and its other files.
    pub(crate) name: &'a str,
}

impl PrivateServer<'_> {
    /// Whether it is to keep what was committed when it is killed, or the machine crashes.
    pub(crate) fn durable(&self) -> bool {
        self.role.is_killed() || self.run_dir.durable
    }

    /// The library that sets its clock, and the file with the clock's offset.
    fn clock(&self) -> Option<(&Path, PathBuf)> {
        let ServerRole::Killed { faketime } = self.role else {
            return None;
        };
        Some((
            faketime?,
            self.run_dir.path(&format!("{}-clock", self.name)),
        ))
    }

    /// The command that runs this program as the server.
    pub(crate) fn command(&self, program: &Path) -> Result<Command> {
        let path = self.run_dir.path(&format!("{}.log", self.name));
        let log = File::create(&path)?;
        // Ubuntu's AppArmor lets MySQL write to its own files only.
        self.run_dir.give(&path)?;
        let mut command = if self.role.is_killed() {
            let mut shell = self.run_dir.command(Path::new("/bin/sh"));
            shell.args(["-c", RESTART_LOOP, "sh"]).arg(program);
            shell
        } else {
            self.run_dir.command(program)
        };
        if let Some((library, clock)) = self.clock() {
            write_clock(&clock)?;
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                // The seconds for which the server uses what it has read. Without it, the server reads at every call.
                .env("FAKETIME_CACHE_DURATION", "1")
                // Waits are measured by the monotonic clock.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Starts the server by its command, and waits until `title` finds its name and version at this URL. It is ended with `stop`,
    /// and killed by the numbers in `pid_files`.
    pub(crate) fn start(
        &self,
        command: &mut Command,
        stop: Signal,
        pid_files: &[PathBuf],
        url: String,
        title: impl Fn(&str) -> Result<String>,
    ) -> Result<Server> {
        let is_killed = self.role.is_killed();
        let kill = is_killed.then(|| write_kill_program(self.run_dir, self.name, pid_files));
        let kill = kill.transpose()?;
        let title = cleanup::start_server(command, stop, || title(&url))
            .with_context(|| self.run_dir.log(self.name))?;
        Ok(Server {
            title,
            url,
            kill,
            clock: self.clock().map(|(_, clock)| clock),
            ..Server::default()
        })
    }
}

/// Sets a clock that libfaketime reads to the time of the machine.
pub(crate) fn write_clock(file: &Path) -> Result<()> {
    fs::write(file, "+0s\n").with_context(|| file.display().to_string())
}

/// What a program does that kills servers.
const KILL: &str = include_str!("kill.sh");

/// A program that kills, stops or continues the processes whose numbers are in `pid_files`.
pub(crate) fn write_kill_program(
    run_dir: &RunDir,
    name: &str,
    pid_files: &[PathBuf],
) -> Result<PathBuf> {
    let path = run_dir.path(&format!("kill-{name}"));
    let files: Vec<_> = pid_files.iter().map(|it| it.to_string_lossy()).collect();
    let directory = run_dir.directory.display();
    let files = files.join(" ");
    let script = format!("#!/bin/sh\ndirectory='{directory}'\nfiles='{files}'\n{KILL}");
    write_program(&path, &script)?;
    // Patroni starts its server in a process group of its own.
    cleanup::register("program", path.display());
    Ok(path)
}

pub(crate) fn write_program(path: &Path, script: &str) -> Result<()> {
    fs::write(path, script)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    Ok(())
}
