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

/// The result of one connection.
struct Counted {
    refusals: Refusals,
    started: Instant,
    ended: Instant,
}

impl Workload<'_> {
    /// Runs the work on all connections. Returns how many transactions were refused, and the elapsed time without
    /// connecting.
    pub(crate) fn on_all(
        &self,
        connections: Vec<AnyConnection>,
    ) -> Result<(Refusals, Duration), Error> {
        let meetings = Meeting::of(connections.len()).into_iter();
        let meetings = meetings.zip(Meeting::of(connections.len()));
        let counted = thread::scope(|scope| {
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
            ended.collect::<Result<Vec<_>, _>>()
        })?;

        let refusals = counted.iter().map(|one| one.refusals);
        let first = counted.iter().map(|one| one.started).min();
        let last = counted.iter().map(|one| one.ended).max();
        let time = first.zip(last).map(|(first, last)| last - first);
        Ok((
            refusals.fold(Refusals::default(), Refusals::and),
            time.unwrap_or_default(),
        ))
    }

    fn on_one(&self, conn: &mut AnyConnection, mut reading: Meeting) -> Result<Counted, Error> {
        let started = Instant::now();
        let mut refusals = Refusals::default();
        for _ in 0..self.numbers {
            while let Some(refusal) = self.once(conn, &mut reading)? {
                refusals.add(refusal);
                // Other refusals come after a wait for the row, so they need no pause.
                if refusal == Refusal::Busy {
                    thread::sleep(PAUSE);
                }
            }
        }
        Ok(Counted {
            refusals,
            started,
            ended: Instant::now(),
        })
    }

    /// Takes a number and inserts it, in one transaction.
    fn once(
        &self,
        conn: &mut AnyConnection,
        reading: &mut Meeting,
    ) -> Result<Option<Refusal>, Error> {
        attempt(conn, self.begin, |conn| {
            let number = self.increment.draw(conn, self.sequence, reading)?;
            Statement {
                text: "INSERT INTO row_locking_drawn (n) VALUES (?)",
                number,
            }
            .execute(conn)?;
            Ok(())
        })
    }
}

/// Why the database refused a transaction that can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Deadlock,
    /// A serialization failure, for example because another transaction has changed the row since the snapshot.
    Serialization,
    /// SQLite: another connection writes, or has written since the snapshot. Other engines: a lock time-out.
    Busy,
}

impl Refusal {
    fn of(error: &Error) -> Option<Self> {
        if error.is_deadlock() {
            Some(Self::Deadlock)
        } else if error.is_serialization_failure() {
            Some(Self::Serialization)
        } else if error.is_timeout() {
            Some(Self::Busy)
        } else {
            None
        }
    }
}

/// Runs `work` in a transaction that `begin` starts, and commits it. Returns why the database refused it, if it did;
/// any other error is returned as such. Both roll back.
fn attempt(
    conn: &mut AnyConnection,
    begin: &str,
    work: impl FnOnce(&mut AnyConnection) -> Result<(), Error>,
) -> Result<Option<Refusal>, Error> {
    // By Diesel, so that Diesel and `next_number` know that a transaction is open.
    let ended = conn
        .begin(begin)
        .map_err(Error::from)
        .and_then(|()| work(conn))
        .and_then(|()| Ok(conn.commit()?));
    let Err(error) = ended else {
        return Ok(None);
    };
    // The transaction may have ended already, if BEGIN or COMMIT failed.
    if conn.is_in_transaction()? {
        conn.roll_back()?;
    }
    Refusal::of(&error).map(Some).ok_or(error)
}
