//! A second process that stops the servers and removes their data when this one has ended, however it ended.
//!
//! It reads the resources that it stops and removes from a pipe. The pipe closes when this process closes it, which is the ordinary way, but
//! also when this process panics or is killed with SIGKILL. One way to clean up, then, and no `unsafe` code for it.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, io};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

mod resources;

use self::resources::Resources;
use crate::interrupt;
use crate::spawn::{pid, spawn};

/// How long servers may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval between checks of their state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The clean-up process: reads what is registered until the pipe closes, then stops and removes it.
pub(crate) fn serve() -> ExitCode {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // They are meant for the other process, which closes the pipe when it has dealt with them.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let mut resources = Resources::default();
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        if resources.apply(&line).is_none() {
            eprintln!("xtask: the clean-up process does not understand '{line}'");
        }
    }
    resources.clean_up();
    ExitCode::SUCCESS
}

/// What is registered with the clean-up process, and the pipe to it.
struct Registry {
    pipe: ChildStdin,
    /// The same resources, in case the clean-up process is killed.
    resources: Resources,
}

/// There is one clean-up process at most, for all that this process starts.
static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// The process group ends with this process: with `stop`, or else SIGKILL.
pub(crate) fn register_group(pid: Pid, stop: Signal) {
    send(&format!("group {pid} {stop}"));
}

/// The process group has ended.
pub(crate) fn unregister_group(pid: Pid) {
    send(&format!("group-ended {pid}"));
}

/// The container ends with this process.
pub(crate) fn register_container(name: &str) {
    send(&format!("container {name}"));
}

/// The directory is removed at the end of this process.
pub(crate) fn register_directory(directory: &Path) {
    send(&format!("directory {}", directory.display()));
}

/// Does nothing when there is no cleanup: what then runs leaves nothing behind.
fn send(line: &str) {
    if let Some(registry) = &mut *registry() {
        registry.resources.apply(line);
        // When the clean-up process is gone, `CleanupProcess::drop` does its work.
        let _ = writeln!(registry.pipe, "{line}");
    }
}

fn registry() -> MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle on the clean-up process. Dropping it stops and removes everything.
pub(crate) struct CleanupProcess {
    process: Child,
    servers: Vec<Child>,
}

impl CleanupProcess {
    pub(crate) fn start() -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        // In a group of its own, so that what is sent to this process's group does not reach it.
        command
            .arg("cleanup-process")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let mut process = command
            .spawn()
            .context("cannot start the process that stops the servers")?;
        let pipe = process
            .stdin
            .take()
            .context("the clean-up process has no pipe")?;
        let resources = Resources::default();
        *registry() = Some(Registry { pipe, resources });
        Ok(Self {
            process,
            servers: Vec::new(),
        })
    }

    /// Starts a server that is ended with `stop`; the number returned is for [`Self::wait_for`].
    pub(crate) fn start_server(&mut self, command: &mut Command, stop: Signal) -> Result<usize> {
        let child = spawn(command.stdin(Stdio::null()).process_group(0))?;
        register_group(pid(&child), stop);
        self.servers.push(child);
        Ok(self.servers.len() - 1)
    }

    /// Has the server end in good order.
    pub(crate) fn stop_server(&mut self, server: usize) -> Result<()> {
        let server = &mut self.servers[server];
        let pid = pid(server);
        killpg(pid, Signal::SIGTERM)?;
        server.wait()?;
        unregister_group(pid);
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
            // After the answer, which may be that of another process that has taken the port.
            if let Ok(Some(status)) = self.servers[server].try_wait() {
                bail!("it has ended by itself ({status})");
            }
            match answer {
                Err(_) if start.elapsed() < START_TIMEOUT => sleep(POLL_INTERVAL),
                answer => return answer,
            }
        }
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        // This closes the pipe.
        let resources = registry().take().map(|registry| registry.resources);
        let ending = loop {
            // It waits until the servers are gone. They remain as zombies until their parent reads their exit status.
            for server in &mut self.servers {
                let _ = server.try_wait();
            }
            match self.process.try_wait() {
                Ok(None) => sleep(POLL_INTERVAL),
                ending => break ending,
            }
        };
        if !matches!(ending, Ok(Some(status)) if status.success()) {
            eprintln!(
                "xtask: somebody killed the process that stops the servers; stopping them without it"
            );
            if let Some(resources) = resources {
                resources.clean_up();
            }
        }
    }
}
