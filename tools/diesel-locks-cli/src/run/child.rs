//! The process of the command.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, ExitStatus};

use diesel_locks::SlotGuard;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, kill_process_group, test_kill_process_group,
    wait,
};

use super::say;
use crate::failure::Failure;

/// A running command.
pub(super) struct Child {
    /// Its first process.
    number: Pid,
    /// Whether it has a process group of its own. In a terminal it has not: it could not read from there.
    has_group: bool,
    /// Of its first process, when it has ended.
    status: Option<ExitStatus>,
    /// Whether it was sent a signal that is to end it.
    is_to_end: bool,
}

impl Child {
    /// Starts this program again, which becomes the command.
    pub(super) fn start(
        command: &[OsString],
        guard: &SlotGuard,
        as_json: bool,
    ) -> Result<Self, Failure> {
        let failed = |source| Failure::System {
            action: "start this program again",
            source,
        };
        // What the command leaves behind becomes a child of this process. Its end is an event then, and it does not stay
        // in the group as a zombie, as in a container whose first process does not wait for others.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|error| {
            Failure::System {
                action: "wait for the processes of the command",
                source: error.into(),
            }
        })?;
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
            .args(as_json.then_some("--json"))
            .args(["exec", &process::id().to_string(), "--"])
            .args(command)
            .env("DIESEL_LOCKS_SEMAPHORE", guard.slot().semaphore())
            .env("DIESEL_LOCKS_SLOT", guard.slot().number().to_string())
            .env("DIESEL_LOCKS_FENCE", guard.fence().to_string())
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            number: Pid::from_child(&process),
            has_group,
            status: None,
            is_to_end: false,
        })
    }

    /// Passes on a signal that this process got, unless the terminal has sent it to the command too.
    pub(super) fn pass_on(&mut self, signal: i32, by_kernel: bool) {
        if let Some(signal) = Signal::from_named_raw(signal)
            && (self.has_group || !by_kernel)
        {
            self.end(signal);
        }
    }

    /// Sends a signal that is to end the command, also if it is stopped.
    pub(super) fn end(&mut self, signal: Signal) {
        self.is_to_end = true;
        self.send(signal);
        self.send(Signal::CONT);
    }

    /// To no other process: a number is given to another one when its process was waited for and its group has none, and
    /// `try_wait` has looked for that a moment ago.
    fn send(&self, signal: Signal) {
        let sent = if self.has_group {
            kill_process_group(self.number, signal)
        } else if self.status.is_none() {
            kill_process(self.number, signal)
        } else {
            Ok(())
        };
        // The last one may have ended this moment.
        if let Err(error) = sent
            && error != Errno::SRCH
        {
            say(&format!(
                "the signal {} can't be sent to the command: {error}",
                signal.as_raw()
            ));
        }
    }

    /// How the first process of the command has ended. `None` before; and, if the command was sent a signal, while one of
    /// its group runs. A command that ends by itself may leave processes in the background.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((number, status))) if number == self.number => {
                    self.status = Some(ExitStatus::from_raw(status.as_raw()));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(Errno::CHILD) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let is_left = self.is_to_end
            && self.has_group
            && test_kill_process_group(self.number) != Err(Errno::SRCH);
        Ok(self.status.filter(|_| !is_left))
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
