//! The process of the command.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};

use diesel_locks::SlotGuard;
use rustix::process::{Pid, Signal, getppid, kill_process, kill_process_group};

use crate::failure::Failure;

/// A running command.
pub(super) struct Child {
    process: process::Child,
    /// Whether it has a process group of its own. In a terminal it has not: it could not read from there.
    has_group: bool,
}

impl Child {
    /// Starts this program again, which becomes the command.
    pub(super) fn start(command: &[OsString], guard: &SlotGuard) -> Result<Self, Failure> {
        let failed = |source| Failure::System {
            action: "start this program again",
            source,
        };
        let mut start = if cfg!(target_os = "linux") {
            // Also after the file was replaced.
            Command::new("/proc/self/exe")
        } else {
            Command::new(std::env::current_exe().map_err(failed)?)
        };
        let has_group = !io::stdin().is_terminal();
        if has_group {
            start.process_group(0);
        }
        let process = start
            .args(["exec", &process::id().to_string(), "--"])
            .args(command)
            .env("DIESEL_LOCKS_SEMAPHORE", guard.slot().semaphore())
            .env("DIESEL_LOCKS_SLOT", guard.slot().number().to_string())
            .env("DIESEL_LOCKS_FENCE", guard.fence().to_string())
            .spawn()
            .map_err(failed)?;
        Ok(Self { process, has_group })
    }

    /// Passes on a signal that this process got, unless the terminal has sent it to the command too.
    pub(super) fn pass_on(&self, signal: i32, by_kernel: bool) {
        if let Some(signal) = Signal::from_named_raw(signal)
            && (self.has_group || !by_kernel)
        {
            self.send(signal);
        }
    }

    /// Sends a signal that is to end the command, also if it is stopped.
    pub(super) fn end(&self, signal: Signal) {
        self.send(signal);
        self.send(Signal::CONT);
    }

    /// To no other process: the number is not given to one before `try_wait` has returned the status.
    fn send(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        let _ = if self.has_group {
            kill_process_group(pid, signal)
        } else {
            kill_process(pid, signal)
        };
    }

    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }
}

/// Replaces this process by the command, which gets SIGTERM when its parent dies. Returns why it could not.
///
/// The signal stays set when a process becomes another program. To set it between `fork` and `exec` would need unsafe code.
pub(crate) fn become_command(parent: i32, command: &[OsString]) -> Failure {
    let name = || command[0].to_string_lossy().into_owned();
    let not_run = |source| Failure::NotRun {
        command: name(),
        source,
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::TERM)) {
        return not_run(error.into());
    }
    // It may have died before.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return not_run(io::Error::other("diesel-locks has died"));
    }
    not_run(Command::new(&command[0]).args(&command[1..]).exec())
}
