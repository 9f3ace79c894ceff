//! The directory of a run: data, sockets and logs of its servers. The clean-up process removes it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, net};

use anyhow::{Context, Result};
use nix::unistd::{User, geteuid};

use crate::cleanup_process;

/// How many lines of a log are shown when its server has failed.
const LOG_LINES: usize = 20;

/// The directory of a run.
pub(crate) struct RunDir {
    directory: PathBuf,
    durable: bool,
}

impl RunDir {
    pub(crate) fn create(durable: bool) -> Result<Self> {
        // Not `TMPDIR`: the path of a Unix socket has 107 characters at most. And `/tmp` may be in memory, where being
        // durable means nothing.
        let parent = if durable { "/var/tmp" } else { "/tmp" };
        let directory = tempfile::Builder::new()
            .prefix("diesel-locks-")
            .tempdir_in(parent)?
            .keep();
        cleanup_process::register_directory(&directory);
        // The servers run as other users when this process is root's.
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        Ok(Self { directory, durable })
    }

    /// Whether the servers are to survive a crash of the machine, as they would elsewhere.
    pub(crate) fn durable(&self) -> bool {
        self.durable
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
                name.starts_with("PG")
                    || name.starts_with("MYSQL_")
                    || name.starts_with("LC_")
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

    /// Creates the log `name` of a server that runs as `account`.
    pub(crate) fn create_log(&self, name: &str, account: Option<&User>) -> Result<File> {
        let path = self.path(name);
        let log = File::create(&path)?;
        // Ubuntu's AppArmor lets MySQL write to its own files only.
        set_owner(&path, account)?;
        Ok(log)
    }

    /// The end of the log `name`.
    pub(crate) fn log(&self, name: &str) -> String {
        let log = fs::read(self.path(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
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
        format!(
            "servers do not run as root, and there is no user {}",
            names.join(" or ")
        )
    })
}

/// A port of 127.0.0.1 on which no process listens at the moment.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}
