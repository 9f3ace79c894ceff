//! A client of an instance.

use std::io::{BufReader, Read};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use ureq::Agent;

/// A grant of a slot: its number, and its fence as text.
pub(super) struct Grant {
    slot: u64,
    pub(super) fence: String,
}

pub(super) struct Client {
    agent: Agent,
    address: SocketAddr,
}

impl Client {
    /// A client that hangs up after this time.
    pub(super) fn new(address: SocketAddr, patience: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(patience))
            .build();
        Self {
            agent: config.into(),
            address,
        }
    }

    /// The body of the answer.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        let mut answer = self.agent.get(self.url(path)).call()?;
        Ok(answer.body_mut().read_to_string()?)
    }

    /// An answer without an end.
    pub(super) fn stream(&self, path: &str) -> Result<BufReader<impl Read + Send + use<>>> {
        let answer = self.agent.get(self.url(path)).call()?;
        Ok(BufReader::new(answer.into_body().into_reader()))
    }

    /// Stores a document that was changed now.
    pub(super) fn put_document(&self, path: &str) -> Result<()> {
        let changed: DateTime<Utc> = SystemTime::now().into();
        let document = format!("<order changed='{}'/>", changed.to_rfc3339());
        let mut answer = self.agent.put(self.url(path)).send(&document)?;
        // So that the connection can be used again.
        answer.body_mut().read_to_vec()?;
        Ok(())
    }

    /// Starts a job that runs until its slot is released.
    pub(super) fn start_job(&self) -> Result<Grant> {
        let path = self.url("/jobs/measure?seconds=3600");
        let mut answer = self.agent.post(path).send_empty()?;
        let granted: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
        let slot = granted["slot"].as_u64();
        let fence = granted["fence"].as_str();
        Ok(Grant {
            slot: slot.context("a slot")?,
            fence: fence.context("a fence")?.to_owned(),
        })
    }

    pub(super) fn release(&self, grant: &Grant) -> Result<()> {
        let path = self.url("/admin/semaphores/measure/release");
        let body = json!({ "grants": [{ "slot": grant.slot, "fence": grant.fence }] });
        let request = self.agent.post(path).content_type("application/json");
        let mut answer = request.send(&body.to_string())?;
        let released: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
        ensure!(released["released"] == 1, "not released: {released}");
        Ok(())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}
