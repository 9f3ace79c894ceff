//! What a private server is for: the tests, or to be killed by one of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::workplace::Workplace;

/// What a private server is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All that is to be done with a server.
    Use,
    /// `kill -9`: it is durable, and comes back by itself.
    Crash,
}

impl Purpose {
    /// The name of a file of the server's, other than those of the others.
    pub(crate) fn name(self, name: &str) -> String {
        match self {
            Self::Use => name.to_owned(),
            Self::Crash => format!("crash-{name}"),
        }
    }

    pub(crate) fn durable(self, workplace: &Workplace) -> bool {
        self == Self::Crash || workplace.durable()
    }

    /// A program that kills the server whose number is in `pid_file`.
    pub(crate) fn kill_command(
        self,
        workplace: &Workplace,
        pid_file: &Path,
    ) -> Result<Option<PathBuf>> {
        if self == Self::Use {
            return Ok(None);
        }
        let name = pid_file.parent().and_then(Path::file_name);
        let name = name.unwrap_or_default().to_string_lossy();
        let path = workplace.path(&format!("kill-{name}"));
        let script = format!(
            // Its children too: PostgreSQL's would go on serving until they notice.
            "#!/bin/sh\npid=$(head -n 1 '{}')\nkill -9 \"$pid\" $(cat \"/proc/$pid/task/$pid/children\")\n",
            pid_file.display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(Some(path))
    }
}
