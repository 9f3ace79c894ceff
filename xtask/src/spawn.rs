//! Starting programs.

use std::process::{Child, Command};

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// The number of the process.
pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Starts the program.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    let child = command.spawn();
    child.with_context(|| format!("cannot run {}", command.get_program().display()))
}
