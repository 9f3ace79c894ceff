//! What is stopped and removed at the end of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How long servers may take to end before they are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between checks for their end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What the clean-up process stops and removes.
#[derive(Default)]
pub(super) struct Resources {
    /// Process groups, with the signal that ends them.
    groups: BTreeMap<i32, Signal>,
    containers: Vec<String>,
    directories: Vec<PathBuf>,
}

impl Resources {
    pub(super) fn apply(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "group" => {
                let (pid, signal) = rest.split_once(' ')?;
                self.groups.insert(pid.parse().ok()?, signal.parse().ok()?);
            }
            "group-ended" => {
                self.groups.remove(&rest.parse().ok()?);
            }
            "container" => self.containers.push(rest.to_owned()),
            "directory" => self.directories.push(PathBuf::from(rest)),
            _ => return None,
        }
        Some(())
    }

    pub(super) fn clean_up(&self) {
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
        while start.elapsed() < STOP_TIMEOUT
            && self
                .groups
                .keys()
                .any(|&pid| killpg(Pid::from_raw(pid), None).is_ok())
        {
            sleep(POLL_INTERVAL);
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
            Err(_) if start.elapsed() < Duration::from_secs(2) => sleep(POLL_INTERVAL),
            result => return result,
        }
    }
}
