//! Connections to one database with an application's table, each on a thread of its own while something is measured.

use std::cell::Cell;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel::QueryResult;
use diesel::connection::InstrumentationEvent;
use diesel_locks::Error;

use super::{Backend, Database, Value, statements};

/// Connections to a new database. They are dropped before it.
pub(crate) struct Connections<C> {
    connections: Vec<C>,
    pub(crate) database: Database,
}

/// What connections did in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Cycles that ended well; at least one for each connection.
    pub(crate) cycles: u32,
    /// The time of each connection, added up; that of deadlocked cycles included.
    pub(crate) time: Duration,
    /// The part of the time that was spent in COMMIT, if [`Connections::watch`] was called.
    pub(crate) in_commit: Duration,
    /// Cycles among those above that were refused.
    pub(crate) refusals: u32,
    /// Cycles that the database ended as a deadlock's victim.
    pub(crate) deadlocks: u32,
}

thread_local! {
    /// Statements of the thread's connection.
    static STATEMENTS: Cell<u32> = const { Cell::new(0) };
    /// The time that it spent in COMMIT.
    static IN_COMMIT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

impl<C: Backend> Connections<C> {
    /// Connections to a new database with the tables of the crate and of the application.
    pub(crate) fn new(connections: usize) -> Result<Self> {
        let mut all = Self {
            connections: Vec::new(),
            database: Database::create::<C>()?,
        };
        for _ in 0..connections {
            all.connections.push(all.connect()?);
        }
        create_bonds(all.first())?;
        Ok(all)
    }

    pub(crate) fn first(&mut self) -> &mut C {
        &mut self.connections[0]
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.connections.iter_mut()
    }

    /// How many connections.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.connections.len()).unwrap_or(u32::MAX)
    }

    /// A further connection to the same database.
    pub(crate) fn connect(&self) -> Result<C> {
        C::open(&self.database.url)
    }

    /// Counts statements from now on, and the time in COMMIT.
    pub(crate) fn watch(&mut self) {
        for conn in &mut self.connections {
            let mut begun = None;
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
                InstrumentationEvent::CommitTransaction { .. } => begun = Some(Instant::now()),
                InstrumentationEvent::StartQuery { query, .. } => {
                    STATEMENTS.set(STATEMENTS.get() + 1);
                    // The crate's own COMMIT is a query.
                    if begun.is_none() && query.to_string().contains("COMMIT") {
                        begun = Some(Instant::now());
                    }
                }
                InstrumentationEvent::FinishQuery { .. } => {
                    if let Some(begun) = begun.take() {
                        IN_COMMIT.set(IN_COMMIT.get() + begun.elapsed());
                    }
                }
                _ => {}
            });
        }
    }

    /// The statements of this thread's connection since this was last called.
    pub(crate) fn take_statements() -> u32 {
        STATEMENTS.take()
    }

    /// Repeats `cycle`, on all connections at the same time, until `enough` returns true for each. `enough` gets the number
    /// of successful cycles and the time since the first started; `cycle` gets the connection's number, and may count
    /// refusals and deadlocks.
    pub(crate) fn measure(
        &mut self,
        enough: impl Fn(u32, Duration) -> bool + Sync,
        cycle: impl Fn(&mut C, usize, &mut Measured) -> QueryResult<()> + Sync,
    ) -> Result<Measured> {
        let start = Barrier::new(self.connections.len());
        let (start, enough, cycle) = (&start, &enough, &cycle);
        thread::scope(|scope| {
            let connections = self.connections.iter_mut().enumerate();
            let threads: Vec<_> = connections
                .map(|(number, conn)| {
                    scope.spawn(move || {
                        start.wait();
                        repeat(enough, |measured| cycle(conn, number, measured))
                    })
                })
                .collect();
            let mut sum = Measured::default();
            for thread in threads {
                let one = thread.join().expect("the thread has not panicked")?;
                sum.cycles += one.cycles;
                sum.time += one.time;
                sum.in_commit += one.in_commit;
                sum.refusals += one.refusals;
                sum.deadlocks += one.deadlocks;
            }
            Ok(sum)
        })
    }
}

fn repeat(
    enough: impl Fn(u32, Duration) -> bool,
    mut cycle: impl FnMut(&mut Measured) -> QueryResult<()>,
) -> Result<Measured> {
    let started = Instant::now();
    let mut measured = Measured::default();
    loop {
        match cycle(&mut measured).map_err(Error::from) {
            Ok(()) => measured.cycles += 1,
            Err(error) if error.is_deadlock() => measured.deadlocks += 1,
            Err(error) => return Err(error).context("a measured cycle failed"),
        }
        measured.time = started.elapsed();
        if measured.cycles > 0 && enough(measured.cycles, measured.time) {
            measured.in_commit = IN_COMMIT.take();
            return Ok(measured);
        }
    }
}

/// Enough for the planner to use the index.
const BONDS: usize = 2000;
/// Between the rows of two connections, so that they are not on the same page.
const APART: usize = 200;

statements! {
    ReadBond = "SELECT price FROM bonds WHERE id = $1";
    WriteBond = "UPDATE bonds SET price = price + 1 WHERE id = $1";
}

fn create_bonds(conn: &mut impl Backend) -> QueryResult<()> {
    let rows: Vec<_> = (0..BONDS).map(|id| format!("({id}, 100)")).collect();
    conn.batch_execute(
        "CREATE TABLE bonds (id BIGINT NOT NULL PRIMARY KEY, price BIGINT NOT NULL)",
    )?;
    conn.batch_execute(&format!("INSERT INTO bonds VALUES {}", rows.join(", ")))
}

fn bond_of(connection: usize) -> [Value<'static>; 1] {
    let id = i64::try_from(connection * APART % BONDS);
    [Value::Number(id.expect("less than BONDS"))]
}

/// Reads one row by its primary key, another for each connection.
pub(crate) fn read_bond(conn: &mut impl Backend, connection: usize) -> QueryResult<()> {
    conn.number::<ReadBond>(&bond_of(connection)).map(drop)
}

/// Updates that row.
pub(crate) fn write_bond(conn: &mut impl Backend, connection: usize) -> QueryResult<()> {
    conn.change::<WriteBond>(&bond_of(connection)).map(drop)
}
