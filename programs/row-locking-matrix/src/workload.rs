//! Increments the number on all connections at the same time.

use std::thread;
use std::time::{Duration, Instant};

use diesel_locks::{Error, Sequence};

use crate::abortable_barrier::{AbortableBarrier, Participant};
use crate::attempt::{Refusal, attempt};
use crate::increment::Increment;
use crate::outcome::Refusals;
use crate::store::Store;

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
    pub(crate) fn on_all<C: Store>(
        &self,
        connections: Vec<C>,
    ) -> Result<(Refusals, Duration), Error> {
        let start = AbortableBarrier::of(connections.len());
        let reading = AbortableBarrier::of(connections.len());
        let counted = thread::scope(|scope| {
            let threads: Vec<_> = connections
                .into_iter()
                .map(|mut conn| {
                    let (mut at_start, at_reading) = (start.participant(), reading.participant());
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

    fn on_one<C: Store>(
        &self,
        conn: &mut C,
        mut participant: Participant<'_>,
    ) -> Result<Counted, Error> {
        let started = Instant::now();
        let mut refusals = Refusals::default();
        for _ in 0..self.numbers {
            while let Some(refusal) = self.once(conn, &mut participant)? {
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
    fn once<C: Store>(
        &self,
        conn: &mut C,
        participant: &mut Participant<'_>,
    ) -> Result<Option<Refusal>, Error> {
        attempt(conn, self.begin, |conn| {
            let number = self.increment.draw(conn, self.sequence, participant)?;
            conn.run("INSERT INTO row_locking_drawn (n) VALUES (?)", number)?;
            Ok(())
        })
    }
}
