//! Increments the number on all connections at the same time.

use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_locks::{Error, Sequence};
use program_support::connection::AnyConnection;
use program_support::meeting::Meeting;

use crate::outcome::Refusals;
use crate::strategy::{Increment, Statement};

/// The pause before the retry of a transaction that was refused without a wait.
const PAUSE: Duration = Duration::from_millis(1);

/// The work of each connection.
pub(crate) struct Workload<'a> {
    /// The statement that starts a transaction.
    pub(crate) begin: &'a str,
    pub(crate) increment: Increment,
    /// For `next_number`.
    pub(crate) sequence: &'a Sequence,
    pub(crate) numbers: u32,
}

/// The refused transactions of one connection, and when it started and ended.
type Counted = (Refusals, Instant, Instant);

impl Workload<'_> {
    /// Runs the work on all connections. Returns how many transactions were refused, and the elapsed time without
    /// connecting.
    pub(crate) fn on_all(
        &self,
        connections: Vec<AnyConnection>,
    ) -> Result<(Refusals, Duration), Error> {
        let meetings = Meeting::of(connections.len()).into_iter();
        let meetings = meetings.zip(Meeting::of(connections.len()));
        let counted: Vec<Counted> = thread::scope(|scope| {
            let threads: Vec<_> = meetings
                .zip(connections)
                .map(|((mut at_start, at_reading), mut conn)| {
                    scope.spawn(move || {
                        at_start.wait();
                        self.on_one(&mut conn, at_reading)
                    })
                })
                .collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().expect("no thread panics"));
            ended.collect::<Result<_, _>>()
        })?;

        let first = counted.iter().map(|(_, started, _)| *started).min();
        let last = counted.iter().map(|(_, _, ended)| *ended).max();
        let time = first.zip(last).map(|(first, last)| last - first);
        let mut all = Refusals::new();
        for (reason, count) in counted.into_iter().flat_map(|(refusals, ..)| refusals) {
            *all.entry(reason).or_default() += count;
        }
        Ok((all, time.unwrap_or_default()))
    }

    fn on_one(&self, conn: &mut AnyConnection, mut reading: Meeting) -> Result<Counted, Error> {
        let started = Instant::now();
        let mut refusals = Refusals::new();
        for _ in 0..self.numbers {
            while let Err(error) = self.once(conn, &mut reading) {
                // The transaction may have ended already, if BEGIN or COMMIT failed.
                if conn.is_in_transaction()? {
                    conn.roll_back()?;
                }
                let reason = if error.is_deadlock() {
                    "deadlock"
                } else if error.is_serialization_failure() {
                    // For example because another transaction has changed the row since the snapshot.
                    "serialization"
                } else if error.is_timeout() {
                    // SQLite: another connection writes, or has written since the snapshot. Other engines: a lock
                    // time-out. Other refusals come after a wait for the row, so they need no pause.
                    thread::sleep(PAUSE);
                    "busy"
                } else {
                    return Err(error);
                };
                *refusals.entry(reason).or_default() += 1;
            }
        }
        Ok((refusals, started, Instant::now()))
    }

    /// Takes a number and inserts it, in one transaction. An error leaves the transaction open.
    fn once(&self, conn: &mut AnyConnection, reading: &mut Meeting) -> Result<(), Error> {
        // By Diesel, so that Diesel and `next_number` know that a transaction is open.
        conn.begin(self.begin)?;
        let number = self.increment.draw(conn, self.sequence, reading)?;
        Statement {
            text: "INSERT INTO row_locking_drawn (n) VALUES (?)",
            number,
        }
        .execute(conn)?;
        Ok(conn.commit()?)
    }
}
