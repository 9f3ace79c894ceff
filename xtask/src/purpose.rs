//! What a private server is for: the tests, to be killed by one of them, or to be tortured.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::torture::Clock;
use crate::workplace::Workplace;

/// What a private server is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// All that is to be done with a server.
    Use,
    /// `kill -9`: it is durable, and comes back by itself.
    Crash,
    /// As `Crash`, with few connections, and a clock that can be set.
    Torture { clock: Option<&'a Clock> },
}

impl Purpose<'_> {
    /// The name of a file of the server's, other than those of the others.
    pub(crate) fn name(self, name: &str) -> String {
        match self {
            Self::Use => name.to_owned(),
            Self::Crash => format!("crash-{name}"),
            Self::Torture { .. } => format!("torture-{name}"),
        }
    }

    /// Whether it comes back by itself.
    pub(crate) fn is_to_be_killed(self) -> bool {
        !matches!(self, Self::Use)
    }

    /// How many connections it has to give, when that is another number than ever: few, for somebody to use up.
    pub(crate) fn connections(self) -> Option<u32> {
        matches!(self, Self::Torture { .. }).then_some(60)
    }

    /// Gives the server the clock that is meant for it.
    pub(crate) fn set_clock(self, command: &mut Command) {
        if let Self::Torture { clock: Some(clock) } = self {
            clock.give_to(command);
        }
    }

    pub(crate) fn durable(self, workplace: &Workplace) -> bool {
        self.is_to_be_killed() || workplace.durable()
    }

    /// A program that kills the server whose number is in `pid_file`.
    pub(crate) fn kill_command(
        self,
        workplace: &Workplace,
        pid_file: &Path,
    ) -> Result<Option<PathBuf>> {
        if !self.is_to_be_killed() {
            return Ok(None);
        }
        let name = pid_file.parent().and_then(Path::file_name);
        let name = name.unwrap_or_default().to_string_lossy();
        let path = workplace.path(&format!("kill-{name}"));
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
