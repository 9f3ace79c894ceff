//! A worker: a thread with a connection that takes work items until there are none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use program_support::stop;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::arguments::Arguments;
use crate::injected_failure::InjectedFailure;
use crate::issue::{End, issue};
use crate::store::Store;
use crate::work_items::WorkItem;

/// A report of a worker.
pub(crate) enum Event {
    /// An order is done, after this number of retries.
    Issued { passes: usize, retries: u32 },
    /// A transaction failed as planned.
    Failed(InjectedFailure),
    /// The worker has given up an order, or has ended.
    Error(String),
}

/// The state that all workers share.
pub(crate) struct Shared<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) url: &'a str,
    pub(crate) work_items: Vec<WorkItem>,
    pub(crate) next: AtomicUsize,
}

pub(crate) fn connect<C: Store>(url: &str) -> Result<C> {
    let mut conn = C::establish(url).context("can't connect to the database")?;
    conn.configure_session()?;
    Ok(conn)
}

impl Shared<'_> {
    /// Runs a worker until no order is left.
    pub(crate) fn work<C: Store>(&self, number: u64, mut conn: C, events: &Sender<Event>) {
        let seed = self.arguments.seed.wrapping_add(number);
        let mut chance = StdRng::seed_from_u64(seed);
        while !stop::is_requested() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = self.work_items.get(next) else {
                return;
            };
            conn = match self.fill(item, conn, &mut chance, events) {
                Ok(conn) => conn,
                Err(error) => return send(events, Event::Error(format!("{error:#}"))),
            };
        }
    }

    /// Tries until the passes are issued. Returns the connection, or a new one in its place.
    fn fill<C: Store>(
        &self,
        item: &WorkItem,
        mut conn: C,
        chance: &mut StdRng,
        events: &Sender<Event>,
    ) -> Result<C> {
        let mut retries = 0;
        loop {
            let failure = InjectedFailure::by_chance(self.arguments.failures, chance);
            let careless = self.arguments.careless;
            match issue(&mut conn, item, failure, careless, &mut retries) {
                Ok(End::Issued) => {
                    let passes = item.len();
                    send(events, Event::Issued { passes, retries });
                    return Ok(conn);
                }
                Ok(End::RolledBack) => {}
                Ok(End::Abandoned) => conn = self.reconnect(conn)?,
                Err(error) => {
                    send(events, Event::Error(error_text(&error)));
                    return self.reconnect(conn);
                }
            }
            if let Some(failure) = failure {
                send(events, Event::Failed(failure));
            }
        }
    }

    /// Replaces a lost connection by a new one, as a pool does.
    fn reconnect<C: Store>(&self, lost: C) -> Result<C> {
        drop(lost);
        connect(self.url)
    }
}

fn error_text(error: &diesel_locks::Error) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Sends a report. The receiver exists until all workers have ended.
fn send(events: &Sender<Event>, event: Event) {
    let _ = events.send(event);
}
