//! Runs all strategies at all levels on one engine.

use anyhow::{Context, Result};
use diesel_locks::Sequence;

use crate::check::check;
use crate::isolation::{IsolationLevel, LEVELS};
use crate::outcome::{Cell, EngineOutcome, Measured, Verdict};
use crate::store::Store;
use crate::strategy::Strategy;
use crate::workload::Workload;

const DROP: &str =
    "DROP TABLE IF EXISTS row_locking_counter; DROP TABLE IF EXISTS row_locking_drawn";
// The table of numbers has no key, so that repeated numbers are detected and not refused.
const CREATE: &str = "CREATE TABLE row_locking_counter (id INTEGER PRIMARY KEY, n BIGINT NOT NULL); \
     CREATE TABLE row_locking_drawn (n BIGINT NOT NULL); \
     INSERT INTO row_locking_counter (id, n) VALUES (1, 0)";

/// The name of the sequences from which `next_number` draws.
const SEQUENCE: &str = "row-locking-matrix";
const FORGET: &str = "DELETE FROM diesel_locks_sequences WHERE name = 'row-locking-matrix'";

/// A database, and the size of the experiment.
pub(crate) struct Experiment<'a> {
    pub(crate) url: &'a str,
    pub(crate) connections: u16,
    pub(crate) numbers: u32,
}

impl Experiment<'_> {
    /// How many cells a run has.
    pub(crate) const CELLS: usize = LEVELS.len() * Strategy::ALL.len();

    /// Runs all cells. Calls `finished` after each.
    pub(crate) fn run<C: Store>(&self, mut finished: impl FnMut()) -> Result<EngineOutcome> {
        let mut conn = self.connect::<C>()?;
        let engine = conn.title()?;
        diesel_locks::migrate(&mut conn)?;
        conn.batch_execute(FORGET)?;
        let mut cells = Vec::new();
        for isolation in LEVELS {
            for strategy in Strategy::ALL {
                let cell = self.cell(&mut conn, isolation, strategy);
                cells.push(cell.with_context(|| format!("{engine}, {isolation}, {strategy}"))?);
                finished();
            }
        }
        conn.batch_execute(DROP)?;
        conn.batch_execute(FORGET)?;
        Ok(EngineOutcome { engine, cells })
    }

    fn cell<C: Store>(
        &self,
        conn: &mut C,
        isolation: IsolationLevel,
        strategy: Strategy,
    ) -> Result<Cell> {
        let (Some(begin), Some(increment)) = (C::beginning(isolation), C::increment(strategy))
        else {
            return Ok(Cell {
                isolation,
                strategy,
                verdict: Verdict::Skipped,
                measured: None,
            });
        };
        conn.batch_execute(DROP)?;
        conn.batch_execute(CREATE)?;
        let sequence = Sequence::new(SEQUENCE).for_key(isolation);
        let connections = (0..self.connections)
            .map(|_| self.connect::<C>())
            .collect::<Result<Vec<_>>>()?;
        let workload = Workload {
            begin: &begin,
            increment,
            sequence: &sequence,
            numbers: self.numbers,
        };
        let (refusals, time) = workload.on_all(connections)?;

        let drawn = conn.numbers("SELECT n FROM row_locking_drawn")?;
        let end = match strategy {
            Strategy::NextNumber => conn.last_number(&sequence)?.unwrap_or(0),
            _ => conn.number("SELECT n FROM row_locking_counter WHERE id = 1")?,
        };
        let all = self.numbers * u32::from(self.connections);
        let found = check(all.into(), &drawn, end);
        Ok(Cell {
            isolation,
            strategy,
            verdict: Verdict::of(found, refusals),
            measured: Some(Measured {
                lost: found.lost,
                repeated: found.repeated,
                refusals,
                micros_per_number: time.as_secs_f64() * 1e6 / f64::from(all),
            }),
        })
    }

    fn connect<C: Store>(&self) -> Result<C> {
        let mut conn = C::establish(self.url).context("can't connect to the database")?;
        conn.set_up()?;
        Ok(conn)
    }
}
