//! A worker: a thread with a connection that takes work items until there are none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use anyhow::Result;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::is_stop_requested;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::Arguments;
use crate::issue::{End, Failure, issue};

/// A report of a worker.
pub(crate) enum Event {
    /// An item is done, after this number of retries.
    Issued { passes: usize, retries: u32 },
    /// A transaction failed as planned.
    Failed(Failure),
    /// The worker has given up an item, or has ended.
    Error(String),
}

/// What all workers share.
pub(crate) struct Workers<'a> {
    database: &'a Database,
    arguments: &'a Arguments,
    items: Vec<WorkItem>,
    next: AtomicUsize,
}

impl<'a> Workers<'a> {
    pub(crate) fn new(
        database: &'a Database,
        items: Vec<WorkItem>,
        arguments: &'a Arguments,
    ) -> Self {
        Self {
            database,
            arguments,
            items,
            next: AtomicUsize::new(0),
        }
    }

    /// Runs a worker until no item is left.
    pub(crate) fn work(&self, number: u64, mut conn: AnyConnection, events: &Sender<Event>) {
        let seed = self.arguments.seed.wrapping_add(number);
        let mut chance = StdRng::seed_from_u64(seed);
        while !is_stop_requested() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = self.items.get(next) else {
                return;
            };
            conn = match self.fill(item, conn, &mut chance, events) {
                Ok(conn) => conn,
                Err(error) => return send(events, Event::Error(format!("{error:#}"))),
            };
        }
    }

    /// Tries until the passes are issued. Returns the connection, or a new one in its place.
    fn fill(
        &self,
        item: &WorkItem,
        mut conn: AnyConnection,
        chance: &mut StdRng,
        events: &Sender<Event>,
    ) -> Result<AnyConnection> {
        let mut retries = 0;
        loop {
            let failure = Failure::by_chance(self.arguments.failures, chance);
            let careless = self.arguments.careless;
            match issue(&mut conn, item, failure, careless, &mut retries) {
                Ok(End::Issued) => {
                    let passes = item.len();
                    send(events, Event::Issued { passes, retries });
                    return Ok(conn);
                }
                Ok(End::RolledBack) => {}
                Ok(End::Abandoned) => {
                    drop(conn);
                    conn = AnyConnection::open(self.database)?;
                }
                Err(error) => {
                    let text = format!("{:#}", anyhow::Error::from(error));
                    send(events, Event::Error(text));
                    // In place of one that may be lost, as a pool does.
                    return AnyConnection::open(self.database);
                }
            }
            if let Some(failure) = failure {
                send(events, Event::Failed(failure));
            }
        }
    }
}

/// Sends a report. The receiver exists until all workers have ended.
fn send(events: &Sender<Event>, event: Event) {
    let _ = events.send(event);
}

/// The meetings that get a pass in one transaction.
pub(crate) type WorkItem = Vec<i64>;

/// Creates work items for `passes` passes of each meeting. `pairs` percent of the transactions are for two meetings.
pub(crate) fn work_items(meetings: &[i64], passes: usize, pairs: u32, seed: u64) -> Vec<WorkItem> {
    let mut chance = StdRng::seed_from_u64(seed);
    let mut wanted: Vec<i64> = meetings
        .iter()
        .flat_map(|&meeting| std::iter::repeat_n(meeting, passes))
        .collect();
    wanted.shuffle(&mut chance);
    let mut work_items: Vec<WorkItem> = Vec::new();
    let mut wanted = wanted.into_iter().peekable();
    while let Some(meeting) = wanted.next() {
        let mut item = vec![meeting];
        if chance.random_range(0..100) < pairs {
            item.extend(wanted.next_if(|&other| other != meeting));
        }
        work_items.push(item);
    }
    work_items
}

#[cfg(test)]
mod tests {
    use super::work_items;

    #[test]
    fn every_meeting_gets_its_passes() {
        for pairs in [0, 50, 100] {
            let work_items = work_items(&[7, 8, 9], 40, pairs, 1);
            for meeting in [7, 8, 9] {
                let passes = work_items
                    .iter()
                    .flatten()
                    .filter(|&&other| other == meeting);
                assert_eq!(passes.count(), 40);
            }
            let double = work_items.iter().filter(|item| item.len() == 2);
            assert_eq!(double.count() > 0, pairs > 0);
        }
    }
}
