//! Running commands to their end.

use std::io::{IsTerminal, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::interrupt::{self, Current};

/// Runs the command with the output of this process and without input.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    command.stdin(Stdio::null()).process_group(0);
    wait(start(command, Current::Group)?)
}

/// As [`run`], in the care of `guard`: the command ends with this process.
pub(crate) fn run_guarded(guard: &mut Guard, command: &mut Command) -> Result<ExitStatus> {
    command.stdin(Stdio::null()).process_group(0);
    let child = start(command, Current::Group)?;
    let pid = pid(&child);
    guard.watch_group(pid);
    let status = wait(child);
    guard.forget_group(pid);
    status
}

/// Runs the command for the person at the terminal, who may type into it.
///
/// Without a terminal it is the same as [`run_guarded`], but for the input, which is that of this process.
pub(crate) fn run_foreground(guard: &mut Guard, command: &mut Command) -> Result<ExitStatus> {
    if !std::io::stdin().is_terminal() {
        command.process_group(0);
        let child = start(command, Current::Group)?;
        let pid = pid(&child);
        guard.watch_group(pid);
        let status = wait(child);
        guard.forget_group(pid);
        return status;
    }
    // Only the foreground process group may read from a terminal, so the command stays in that of this process.
    let mut child = start(command, Current::Foreground)?;
    let status = child.wait();
    interrupt::ended();
    // Ctrl-C is the command's own business here: its exit code says how it took it.
    Ok(status?)
}

/// Runs the command silently and returns what it printed; its error messages become the error when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let (status, printed, errors) = capture(command)?;
    if !status.success() {
        bail!(
            "{command:?} failed ({status})\n{}{}",
            printed.trim_end(),
            errors.trim_end()
        );
    }
    Ok(printed)
}

/// Runs the command silently and returns how it ended, what it printed, and its error messages.
pub(crate) fn capture(command: &mut Command) -> Result<(ExitStatus, String, String)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = start(command, Current::Group)?;
    let errors = child
        .stderr
        .take()
        .map(|pipe| thread::spawn(move || read(pipe)));
    let printed = child.stdout.take().map(read).unwrap_or_default();
    let status = wait(child)?;
    let errors = errors
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default();
    Ok((status, printed, errors))
}

/// The exit code that a shell would report.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The process's number, as `nix` wants it.
pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn start(command: &mut Command, current: fn(Pid) -> Current) -> Result<Child> {
    interrupt::start(|| {
        let child = command
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let pid = pid(&child);
        Ok((child, current(pid)))
    })
}

fn wait(mut child: Child) -> Result<ExitStatus> {
    let status = child.wait();
    interrupt::ended();
    interrupt::check()?;
    Ok(status?)
}

fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What came before a broken pipe is still worth showing.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
