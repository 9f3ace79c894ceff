//! Waits until an instance shows a holder.

use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::client::{Client, Grant};
use super::instance::Instance;

/// How long the events of one measurement last at most.
const LONGEST: Duration = Duration::from_secs(600);

/// The events of an instance, read while somebody waits for one of them.
pub(super) struct Watch(BufReader<Box<dyn Read + Send>>);

impl Watch {
    pub(super) fn start(instance: &Instance) -> Result<Self> {
        let events = Client::new(instance.address, LONGEST).stream("/events")?;
        Ok(Self(BufReader::new(Box::new(events))))
    }

    /// Returns when the event arrived that shows the grant.
    pub(super) fn wait_for(&mut self, grant: &Grant) -> Result<Instant> {
        let mut line = String::new();
        while self.0.read_line(&mut line)? > 0 {
            let arrived = Instant::now();
            if let Some(event) = line.strip_prefix("data: ")
                && shows(&serde_json::from_str(event)?, &grant.fence)
            {
                return Ok(arrived);
            }
            line.clear();
        }
        bail!("the stream of events has ended");
    }
}

fn shows(event: &Value, fence: &str) -> bool {
    let semaphores = event["semaphores"].as_array().into_iter().flatten();
    let measured = semaphores.filter(|semaphore| semaphore["name"] == "measure");
    let slots = measured.flat_map(|semaphore| semaphore["slots"].as_array().into_iter().flatten());
    slots.into_iter().any(|slot| slot["fence"] == fence)
}
