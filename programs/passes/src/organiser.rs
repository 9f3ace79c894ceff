//! An organiser: a thread with a connection that processes orders until none is left.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::issuing::{End, issue};
use crate::orders::Order;
use crate::store::Store;

/// A report of an organiser.
pub(crate) enum Event {
    /// An order is done, after this number of retries.
    Issued { passes: usize, retries: u32 },
    /// A transaction failed as planned.
    Failed(Failure),
    /// The organiser has given up an order, or has ended.
    Error(String),
}

/// The state that all organisers share.
pub(crate) struct Desk<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) url: &'a str,
    pub(crate) orders: Vec<Order>,
    pub(crate) next: AtomicUsize,
    pub(crate) stop: &'a AtomicBool,
}

pub(crate) fn connect<C: Store>(url: &str) -> Result<C> {
    let mut conn = C::establish(url).context("can't connect to the database")?;
    conn.set_up()?;
    Ok(conn)
}

impl Desk<'_> {
    /// Runs an organiser until no order is left.
    pub(crate) fn work<C: Store>(&self, number: u64, mut conn: C, events: &Sender<Event>) {
        let seed = self.arguments.seed.wrapping_add(number);
        let mut chance = StdRng::seed_from_u64(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(order) = self.orders.get(next) else {
                return;
            };
            conn = match self.fill(order, conn, &mut chance, events) {
                Ok(conn) => conn,
                Err(error) => return tell(events, Event::Error(format!("{error:#}"))),
            };
        }
    }

    /// Tries until the passes are issued. Returns the connection, or a new one in its place.
    fn fill<C: Store>(
        &self,
        order: &Order,
        mut conn: C,
        chance: &mut StdRng,
        events: &Sender<Event>,
    ) -> Result<C> {
        let mut retries = 0;
        loop {
            let failure = Failure::by_chance(self.arguments.failures, chance);
            let careless = self.arguments.careless;
            match issue(&mut conn, order, failure, careless, &mut retries) {
                Ok(End::Issued) => {
                    let passes = order.len();
                    tell(events, Event::Issued { passes, retries });
                    return Ok(conn);
                }
                Ok(End::RolledBack) => {}
                Ok(End::Abandoned) => conn = self.reconnect(conn)?,
                Err(error) => {
                    tell(events, Event::Error(error_text(&error)));
                    return self.reconnect(conn);
                }
            }
            if let Some(failure) = failure {
                tell(events, Event::Failed(failure));
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

/// Sends a report. The receiver exists until all organisers have ended.
fn tell(events: &Sender<Event>, event: Event) {
    let _ = events.send(event);
}
