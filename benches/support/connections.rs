//! Connections to one database, each on a thread of its own while something is measured.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel::QueryResult;
use diesel_locks::Error;

use super::backend::Backend;

/// Connections to a new database. They are dropped before it.
pub(crate) struct Connections<C: Backend> {
    connections: Vec<C>,
    database: C::Database,
}

/// What all connections did together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Cycles that ended well; at least one for each connection.
    pub(crate) cycles: u32,
    /// The time of each connection, added up; that of deadlocked cycles included.
    pub(crate) time: Duration,
    /// Cycles that the database ended as a deadlock's victim.
    pub(crate) deadlocks: u32,
}

impl Measured {
    /// What one connection needs for a cycle while the others are at work.
    pub(crate) fn per_cycle(&self) -> Duration {
        self.time / self.cycles
    }
}

impl<C: Backend> Connections<C> {
    /// Connections to a new database with the tables of the crate, of the application and of the baselines.
    pub(crate) fn new(connections: usize) -> Result<Self> {
        let mut all = Self {
            connections: Vec::new(),
            database: C::create_database()?,
        };
        for _ in 0..connections {
            all.connections.push(all.connect()?);
        }
        let first = &mut all.connections[0];
        diesel_locks::migrate(first)?;
        first.create_tables()?;
        Ok(all)
    }

    pub(crate) fn version(&mut self) -> Result<String> {
        self.connections[0].version()
    }

    /// How many connections.
    #[allow(dead_code, reason = "not all benchmarks need it")]
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.connections.len()).unwrap_or(u32::MAX)
    }

    /// A further connection to the same database.
    pub(crate) fn connect(&self) -> Result<C> {
        C::connect_to(&self.database)
    }

    /// Repeats `cycle`, on all connections at the same time, until `enough` returns true for each. `enough`
    /// gets the number of successful cycles and the time since the first started; `cycle` gets the
    /// connection's number.
    pub(crate) fn measure(
        &mut self,
        enough: impl Fn(u32, Duration) -> bool + Sync,
        cycle: impl Fn(&mut C, usize) -> QueryResult<()> + Sync,
    ) -> Result<Measured> {
        let start = Barrier::new(self.connections.len());
        let (start, enough, cycle) = (&start, &enough, &cycle);
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .connections
                .iter_mut()
                .enumerate()
                .map(|(number, conn)| {
                    scope.spawn(move || {
                        start.wait();
                        repeat(enough, || cycle(conn, number))
                    })
                })
                .collect();
            let mut sum = Measured::default();
            for thread in threads {
                let one = thread.join().expect("the thread has not panicked")?;
                sum.cycles += one.cycles;
                sum.time += one.time;
                sum.deadlocks += one.deadlocks;
            }
            Ok(sum)
        })
    }
}

fn repeat(
    enough: impl Fn(u32, Duration) -> bool,
    mut cycle: impl FnMut() -> QueryResult<()>,
) -> Result<Measured> {
    let started = Instant::now();
    let mut measured = Measured::default();
    loop {
        match cycle().map_err(Error::from) {
            Ok(()) => measured.cycles += 1,
            Err(error) if error.is_deadlock() => measured.deadlocks += 1,
            Err(error) => return Err(error).context("a measured cycle failed"),
        }
        measured.time = started.elapsed();
        if measured.cycles > 0 && enough(measured.cycles, measured.time) {
            return Ok(measured);
        }
    }
}
