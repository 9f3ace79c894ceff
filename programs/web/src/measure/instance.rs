//! A process of the program.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use program_support::database::Database;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::client::Client;

/// An instance that listens. It ends with this value.
pub(super) struct Instance {
    pub(super) address: SocketAddr,
    process: Child,
}

impl Instance {
    pub(super) fn start(database: &Database, name: &str, clients: u32) -> Result<Self> {
        let process = Command::new(std::env::current_exe()?)
            .args(["--database-url", &database.url, "--name", name])
            .args(["--listen", "127.0.0.1:0", "--wait-seconds", "120"])
            .args(["--max-waiting", &(clients * 2).to_string()])
            .env_remove("OPERATOR_TOKEN")
            .stdout(Stdio::piped())
            // It tells of each slot that is released by force.
            .stderr(Stdio::null())
            .spawn()
            .context("can't start an instance")?;
        // Ends the process if the address is missing.
        let mut started = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            process,
        };
        let output = started.process.stdout.take().context("piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().rsplit_once("http://");
        let (_, address) = address.context("an instance has ended: start one to see why")?;
        started.address = address.parse()?;
        Ok(started)
    }

    /// The database, as the page names it.
    pub(super) fn engine(&self) -> Result<String> {
        let state = self.state()?;
        Ok(state["engine"].as_str().context("an engine")?.to_owned())
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> Result<u64> {
        let state = self.state()?;
        state["rates"]["waiting"].as_u64().context("a number")
    }

    fn state(&self) -> Result<Value> {
        let client = Client::new(self.address, Duration::from_secs(60));
        Ok(serde_json::from_str(&client.get("/api/state")?)?)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended.
        let number = Pid::from_raw(self.process.id().cast_signed());
        let asked = number.is_some_and(|number| kill_process(number, Signal::TERM).is_ok());
        if !asked {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
