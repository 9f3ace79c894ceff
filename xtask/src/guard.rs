//! A second process that stops the servers and removes their data when this one has ended, however it ended.
//!
//! It reads what it has charge of from a pipe. The pipe closes when this process closes it, which is the ordinary way, but
//! also when this process panics or is killed with SIGKILL. One way to clean up, then, and no `unsafe` code for it.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{interrupt, run};

/// How long servers may take to end before they are killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long servers may take to start.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked whether they have ended.
const PAUSE: Duration = Duration::from_millis(20);

/// What the guard has charge of.
#[derive(Default)]
struct Charges {
    /// Process groups, with the signal that ends them.
    groups: BTreeMap<i32, Signal>,
    containers: Vec<String>,
    directories: Vec<PathBuf>,
}

impl Charges {
    fn note(&mut self, line: &str) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "group" => {
                let (pid, signal) = rest.split_once(' ')?;
                self.groups.insert(pid.parse().ok()?, signal.parse().ok()?);
            }
            "forget" => {
                self.groups.remove(&rest.parse().ok()?);
            }
            "container" => self.containers.push(rest.to_owned()),
            "directory" => self.directories.push(PathBuf::from(rest)),
            _ => return None,
        }
        Some(())
    }

    fn clean_up(&self) {
        for (&pid, &signal) in &self.groups {
            // An error means that the group has ended by itself.
            let _ = killpg(Pid::from_raw(pid), signal);
        }
        for container in &self.containers {
            let mut docker = Command::new("docker");
            docker
                .args(["rm", "--force", container])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let _ = docker.status();
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE
            && self
                .groups
                .keys()
                .any(|&pid| killpg(Pid::from_raw(pid), None).is_ok())
        {
            sleep(PAUSE);
        }
        for &pid in self.groups.keys() {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        for directory in &self.directories {
            if let Err(error) = remove(directory) {
                eprintln!("xtask: cannot remove {}: {error}", directory.display());
            }
        }
    }
}

/// Removes a directory; a process that has just been killed may still be writing its last file there.
fn remove(directory: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if start.elapsed() < Duration::from_secs(2) => sleep(PAUSE),
            result => return result,
        }
    }
}

/// The guard process: takes notes until the pipe closes, then cleans up.
pub(crate) fn serve() -> ExitCode {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // They are meant for the other process, which closes the pipe when it has dealt with them.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let mut charges = Charges::default();
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        if charges.note(&line).is_none() {
            eprintln!("xtask: the guard does not understand '{line}'");
        }
    }
    charges.clean_up();
    ExitCode::SUCCESS
}

/// What the guard has been told, and how to tell it more.
struct Notes {
    pipe: ChildStdin,
    /// The same notes, in case someone kills the guard.
    charges: Charges,
}

/// There is one guard at most, for all that this process starts.
static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

/// The process group ends with this process: with `stop`, or else SIGKILL.
pub(crate) fn watch_group(pid: Pid, stop: Signal) {
    tell(&format!("group {pid} {stop}"));
}

/// The process group has ended.
pub(crate) fn forget_group(pid: Pid) {
    tell(&format!("forget {pid}"));
}

/// The container ends with this process.
pub(crate) fn watch_container(name: &str) {
    tell(&format!("container {name}"));
}

/// The directory is removed at the end of this process.
pub(crate) fn watch_directory(directory: &Path) {
    tell(&format!("directory {}", directory.display()));
}

/// Does nothing when there is no guard: what then runs leaves nothing behind.
fn tell(line: &str) {
    if let Some(notes) = &mut *notes() {
        notes.charges.note(line);
        // When the guard is gone, `Guard::drop` does its work.
        let _ = writeln!(notes.pipe, "{line}");
    }
}

fn notes() -> MutexGuard<'static, Option<Notes>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guard as seen from the process that it guards. Dropping it stops and removes everything.
pub(crate) struct Guard {
    process: Child,
    servers: Vec<Child>,
}

impl Guard {
    pub(crate) fn start() -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        // In a group of its own, so that what is sent to this process's group does not reach it.
        command
            .arg("guard")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let mut process = command
            .spawn()
            .context("cannot start the process that guards the servers")?;
        let pipe = process.stdin.take().context("the guard has no pipe")?;
        let charges = Charges::default();
        *notes() = Some(Notes { pipe, charges });
        Ok(Self {
            process,
            servers: Vec::new(),
        })
    }

    /// Starts a server that is ended with `stop`; the number returned is for [`Self::wait_for`].
    pub(crate) fn start_server(&mut self, command: &mut Command, stop: Signal) -> Result<usize> {
        self.servers.push(run::start_server(command, stop)?);
        Ok(self.servers.len() - 1)
    }

    /// Has the server end in good order.
    pub(crate) fn stop_server(&mut self, server: usize) -> Result<()> {
        let server = &mut self.servers[server];
        let pid = run::pid(server);
        killpg(pid, Signal::SIGTERM)?;
        server.wait()?;
        forget_group(pid);
        Ok(())
    }

    /// Repeats `attempt` until the server answers it.
    pub(crate) fn wait_for<T>(
        &mut self,
        server: usize,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            let answer = attempt();
            // Looked at after the answer, which may be that of somebody else who was quicker to take the port.
            if let Ok(Some(status)) = self.servers[server].try_wait() {
                bail!("it has ended by itself ({status})");
            }
            match answer {
                Err(_) if start.elapsed() < START_PATIENCE => sleep(PAUSE),
                answer => return answer,
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // This closes the pipe.
        let charges = notes().take().map(|notes| notes.charges);
        let ending = loop {
            // The guard waits until the servers are gone, and they are not before their parent has asked how they ended.
            for server in &mut self.servers {
                let _ = server.try_wait();
            }
            match self.process.try_wait() {
                Ok(None) => sleep(PAUSE),
                ending => break ending,
            }
        };
        if !matches!(ending, Ok(Some(status)) if status.success()) {
            eprintln!(
                "xtask: somebody killed the process that stops the servers; stopping them without it"
            );
            if let Some(charges) = charges {
                charges.clean_up();
            }
        }
    }
}
