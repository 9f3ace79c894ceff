//! What private servers have in common: the directory of a run, with their data, sockets and logs, and what each is for.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, net};

use anyhow::{Context, Result};
use nix::unistd::{User, geteuid};

use crate::cleanup;

/// How many lines of a log are shown when its server has failed.
const LOG_LINES: usize = 20;

/// Restarts a server whenever it ends. The delay lets what is left of the last one go.
const RESTART_LOOP: &str = "while :; do \"$@\"; sleep 0.2; done";

/// The directory of a run. The clean-up process removes it.
pub(crate) struct RunDir {
    directory: PathBuf,
    /// Whether the servers are to survive a crash of the machine, as they would elsewhere.
    pub(crate) durable: bool,
}

impl RunDir {
    pub(crate) fn create(durable: bool) -> Result<Self> {
        // Not `TMPDIR`: the path of a Unix socket has 107 characters at most. And `/tmp` may be in memory, where being
        // durable means nothing.
        let parent = if durable { "/var/tmp" } else { "/tmp" };
        let mut builder = tempfile::Builder::new();
        let directory = builder.prefix("diesel-locks-").tempdir_in(parent)?.keep();
        cleanup::register_directory(&directory);
        // The servers run as other users when this process is root's.
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        Ok(Self { directory, durable })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A directory that belongs to `account`.
    pub(crate) fn directory(&self, name: &str, account: Option<&User>) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        set_owner(&path, account)?;
        Ok(path)
    }

    /// A command of a server, run by `account`, without the settings that the caller has for other servers.
    pub(crate) fn command(&self, program: &Path, account: Option<&User>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory);
        for (name, _) in env::vars_os() {
            let theirs = |name: &str| {
                ["PG", "MYSQL_", "LC_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
                    || ["LANG", "LANGUAGE", "TMPDIR"].contains(&name)
            };
            if name.to_str().is_some_and(theirs) {
                command.env_remove(name);
            }
        }
        if let Some(account) = account {
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
        command
    }

    /// The end of the log `name`, for an error.
    pub(crate) fn log(&self, name: &str) -> String {
        let log = fs::read(self.path(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("the server has not started\n{end}")
    }
}

fn set_owner(path: &Path, account: Option<&User>) -> io::Result<()> {
    let Some(account) = account else {
        return Ok(());
    };
    chown(path, Some(account.uid.as_raw()), Some(account.gid.as_raw()))
}

/// The user to run a server as: the first of `names` that exists when this process is root's, which servers refuse to be.
pub(crate) fn account(names: &[&str]) -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let found = names
        .iter()
        .find_map(|name| User::from_name(name).ok().flatten());
    found.map(Some).with_context(|| {
        let names = names.join(" or ");
        format!("servers do not run as root, and there is no user {names}")
    })
}

/// A port of 127.0.0.1 on which no process listens at the moment.
pub(crate) fn free_port() -> io::Result<u16> {
    let listener = net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// A clock of a server or a program that can be set, by way of libfaketime.
pub(crate) struct Clock {
    pub(crate) library: PathBuf,
    pub(crate) file: PathBuf,
}

impl Clock {
    pub(crate) fn new(run_dir: &RunDir, library: PathBuf) -> Result<Self> {
        let file = run_dir.path("clock");
        fs::write(&file, "+0s\n").with_context(|| file.display().to_string())?;
        Ok(Self { library, file })
    }
}

/// What a private server is for.
#[derive(Clone, Copy)]
pub(crate) enum ServerRole<'a> {
    /// Used by tests and never killed.
    Regular,
    /// Killed by a test with `kill -9`: it is durable, and starts again.
    Crash,
    /// Like `Crash`, with few connections, and a clock that can be set.
    Torture { clock: Option<&'a Clock> },
}

impl ServerRole<'_> {
    /// A file name that differs from those of other roles.
    pub(crate) fn name(self, name: &str) -> String {
        match self {
            Self::Regular => name.to_owned(),
            Self::Crash => format!("crash-{name}"),
            Self::Torture { .. } => format!("torture-{name}"),
        }
    }

    /// Whether the server is killed, and starts again.
    fn is_killed(self) -> bool {
        !matches!(self, Self::Regular)
    }

    /// The limit on connections, if it differs from the usual one: low, so that it can be reached.
    pub(crate) fn connections(self) -> Option<u32> {
        matches!(self, Self::Torture { .. }).then_some(100)
    }

    pub(crate) fn durable(self, run_dir: &RunDir) -> bool {
        self.is_killed() || run_dir.durable
    }

    /// The command of a server that runs as `account` and writes to the log `name`.
    pub(crate) fn command(
        self,
        run_dir: &RunDir,
        program: &Path,
        account: Option<&User>,
        name: &str,
    ) -> Result<Command> {
        let path = run_dir.path(name);
        let log = File::create(&path)?;
        // Ubuntu's AppArmor lets MySQL write to its own files only.
        set_owner(&path, account)?;
        let mut command = if self.is_killed() {
            let mut shell = run_dir.command(Path::new("/bin/sh"), account);
            shell.args(["-c", RESTART_LOOP, "sh"]).arg(program);
            shell
        } else {
            run_dir.command(program, account)
        };
        if let Self::Torture { clock: Some(clock) } = self {
            command
                .env("LD_PRELOAD", &clock.library)
                .env("FAKETIME_TIMESTAMP_FILE", &clock.file)
                // The seconds for which the server uses what it has read. Without it, the server reads at every call.
                .env("FAKETIME_CACHE_DURATION", "1")
                // Waits are measured by the monotonic clock.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// A program that kills the server whose number is in `pid_file`.
    pub(crate) fn kill_command(self, run_dir: &RunDir, pid_file: &Path) -> Result<Option<PathBuf>> {
        if !self.is_killed() {
            return Ok(None);
        }
        let name = pid_file.parent().and_then(Path::file_name);
        let name = name.unwrap_or_default().to_string_lossy();
        let path = run_dir.path(&format!("kill-{name}"));
        // Its children too: PostgreSQL's would go on serving until they notice. Standing still, it neither makes another
        // nor learns of the end of one, whose number could be somebody else's then.
        let script = format!(
            "#!/bin/sh\n\
             pid=$(head -n 1 '{}') && [ -n \"$pid\" ] && kill -STOP \"$pid\" || exit 1\n\
             children=$(cat \"/proc/$pid/task/$pid/children\")\n\
             kill -9 \"$pid\" || exit 1\n\
             [ -z \"$children\" ] || kill -9 $children 2>/dev/null\n\
             exit 0\n",
            pid_file.display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(Some(path))
    }
}
