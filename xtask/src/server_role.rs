//! What a private server is for: tests, one test that kills it, or the torture.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use nix::unistd::User;

use crate::clock::Clock;
use crate::run_dir::RunDir;

/// Restarts a server whenever it ends. The delay lets what is left of the last one go.
const RESTART_LOOP: &str = "while :; do \"$@\"; sleep 0.2; done";

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
    pub(crate) fn is_killed(self) -> bool {
        !matches!(self, Self::Regular)
    }

    /// The limit on connections, if it differs from the usual one: low, so that it can be reached.
    pub(crate) fn connections(self) -> Option<u32> {
        matches!(self, Self::Torture { .. }).then_some(100)
    }

    /// The command of a server that runs as `account` and writes to the log `name`.
    pub(crate) fn command(
        self,
        run_dir: &RunDir,
        program: &Path,
        account: Option<&User>,
        name: &str,
    ) -> Result<Command> {
        let log = run_dir.create_log(name, account)?;
        let mut command = if self.is_killed() {
            let mut shell = run_dir.command(Path::new("/bin/sh"), account);
            shell.args(["-c", RESTART_LOOP, "sh"]).arg(program);
            shell
        } else {
            run_dir.command(program, account)
        };
        if let Self::Torture { clock: Some(clock) } = self {
            clock.set_variables(&mut command);
        }
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    pub(crate) fn durable(self, run_dir: &RunDir) -> bool {
        self.is_killed() || run_dir.durable()
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
