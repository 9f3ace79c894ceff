//! A process of the program.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use program_support::testing::{Signal, signal, wait_until};
use serde_json::Value;

use crate::client::get;

/// How long a state is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An instance that listens. It is killed when it is dropped.
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Instance {
    /// Starts an instance on the database, with more arguments.
    pub(crate) fn start(url: &str, more: &[&str]) -> Self {
        Self::start_with_log(url, more, Stdio::inherit())
    }

    /// With its standard error.
    pub(crate) fn start_with_log(url: &str, more: &[&str], log: Stdio) -> Self {
        let mut process = command(url, more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("web starts");
        let output = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line
            .trim()
            .rsplit_once("http://")
            .map(|(_, address)| address);
        let address = address.unwrap_or_else(|| panic!("no address: {line}"));
        Self {
            address: address.parse().expect("an address"),
            process,
        }
    }

    /// Two instances on one database.
    pub(crate) fn two(url: &str, more: &[&str]) -> [Self; 2] {
        [Self::start(url, more), Self::start(url, more)]
    }

    /// An instance that does not start: its exit code, and what it says.
    pub(crate) fn refused(url: &str, more: &[&str]) -> (Option<i32>, String) {
        let process = command(url, more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("web starts");
        // Killed if it has started all the same.
        let mut started = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            process,
        };
        let status = started.wait();
        let mut text = String::new();
        let mut stderr = started.process.stderr.take().expect("piped");
        stderr.read_to_string(&mut text).expect("UTF-8");
        (status.code(), text)
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// The newest snapshot.
    pub(crate) fn state(&self) -> Value {
        get(self.address, "/api/state").json()
    }

    /// Waits until so many requests wait.
    pub(crate) fn await_waiting(&self, requests: u64) {
        self.await_state(|state| state["rates"]["waiting"] == requests);
    }

    /// Waits for a snapshot.
    pub(crate) fn await_state(&self, wanted: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        loop {
            let state = self.state();
            if wanted(&state) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{state:#}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks the instance to end, as an operator does.
    pub(crate) fn terminate(&self) {
        signal(self.process.id(), Signal::TERM);
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("web has ended", || {
            status = self.process.try_wait().expect("a process");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

fn command(url: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_web"));
    if !more.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command
        .args(["--database-url", url])
        .args(more)
        .env_remove("OPERATOR_TOKEN");
    command
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
