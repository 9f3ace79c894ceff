//! A process of the program.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use program_support::testing::http::get;
use program_support::testing::{self, Signal, wait_until};
use serde_json::Value;

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_web"));
        if !more.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut process = command
            .args(["--database-url", url])
            .args(more)
            .env_remove("OPERATOR_TOKEN")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("web starts");
        let output = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let (_, address) = line.trim().rsplit_once("http://").expect("an address");
        Self {
            address: address.parse().expect("an address"),
            process,
        }
    }

    /// Two instances on one database.
    pub(crate) fn two(url: &str, more: &[&str]) -> [Self; 2] {
        [Self::start(url, more), Self::start(url, more)]
    }

    /// What the page shows.
    pub(crate) fn state(&self) -> Value {
        get(self.address, "/locks/state").json()
    }

    /// Waits until so many requests wait.
    pub(crate) fn await_waiting(&self, requests: u64) {
        let line = format!(r#"diesel_locks_waiting_requests{{kind="object_lock"}} {requests}"#);
        wait_until(&line, || {
            let metrics = get(self.address, "/metrics").body;
            metrics.lines().any(|told| told == line)
        });
    }

    /// Waits until the page shows these lists.
    pub(crate) fn await_lists(&self, wanted: impl Fn(&Value) -> bool) {
        let mut state = Value::Null;
        wait_until("the lists", || {
            let next = self.state()["lists"].take();
            if next != state {
                println!("{next}");
            }
            state = next;
            wanted(&state)
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        testing::signal(self.process.id(), signal);
    }

    /// Asks the instance to end, as an operator does, and waits for its end, as `await_end` does.
    pub(crate) fn terminate(&mut self) -> String {
        self.signal(Signal::TERM);
        self.await_end()
    }

    /// Waits for its end, which is orderly. Returns what it wrote to standard error, if that is a pipe.
    pub(crate) fn await_end(&mut self) -> String {
        let mut status = None;
        wait_until("web has ended", || {
            status = self.process.try_wait().expect("a process");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        let mut log = String::new();
        if let Some(mut pipe) = self.process.stderr.take() {
            pipe.read_to_string(&mut log).expect("UTF-8");
        }
        log
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
