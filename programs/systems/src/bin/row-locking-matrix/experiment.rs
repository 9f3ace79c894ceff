//! Runs all strategies at all levels on one engine.

use anyhow::{Context, Result};
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_locks::IsolationLevel;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};

use crate::outcome::{Cell, Check, violation};
use crate::strategy::{Increment, Statement, Strategy};
use crate::workload::Workload;

/// The isolation levels, from the lowest.
const LEVELS: [IsolationLevel; 3] = [
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

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
    pub(crate) database: &'a Database,
    pub(crate) connections: u16,
    pub(crate) numbers: u32,
}

impl Experiment<'_> {
    /// Prints a row for each level. Adds messages about unexpected results.
    pub(crate) fn run(&self, violations: &mut Vec<String>) -> Result<()> {
        let mut conn = AnyConnection::open(self.database)?;
        diesel_locks::migrate(&mut conn)?;
        conn.batch_execute(FORGET)?;
        let engine = title(&mut conn)?;
        // All transactions of SQLite are serializable.
        let has_level = |level: &IsolationLevel| {
            self.database.engine != Engine::Sqlite || *level == IsolationLevel::Serializable
        };
        for isolation in LEVELS.into_iter().filter(has_level) {
            print!("| {engine}, {isolation} |");
            for strategy in Strategy::ALL {
                let Some(increment) = strategy.increment(self.database.engine) else {
                    print!(" Skipped |");
                    continue;
                };
                let about = format!("{engine}, {isolation}, {}", strategy.title());
                let cell = self.cell(&mut conn, isolation, strategy, increment);
                let cell = cell.with_context(|| about.clone())?;
                print!(" {cell} |");
                let violation = violation(isolation, strategy, &cell);
                violations.extend(violation.map(|text| format!("{about}: {text}")));
            }
            println!();
        }
        conn.batch_execute(DROP)?;
        conn.batch_execute(FORGET)?;
        Ok(())
    }

    fn cell(
        &self,
        conn: &mut AnyConnection,
        isolation: IsolationLevel,
        strategy: Strategy,
        increment: Increment,
    ) -> Result<Cell> {
        conn.batch_execute(DROP)?;
        conn.create_tables(CREATE)?;
        let sequence = Sequence::new(SEQUENCE).for_key(isolation);
        let connections = (0..self.connections)
            .map(|_| AnyConnection::open(self.database))
            .collect::<Result<Vec<_>>>()?;
        // On SQLite deferred, because BEGIN IMMEDIATE would prevent all conflicts.
        let begin = self.database.engine.begin_at(isolation);
        let workload = Workload {
            begin: &begin,
            increment,
            sequence: &sequence,
            numbers: self.numbers,
        };
        let (refusals, time) = workload.on_all(connections)?;

        let drawn = Statement::of("SELECT n FROM row_locking_drawn").load(conn)?;
        let end = match strategy {
            Strategy::NextNumber => conn.last_number(&sequence)?.unwrap_or(0),
            _ => {
                Statement::of("SELECT n FROM row_locking_counter WHERE id = 1").get_result(conn)?
            }
        };
        let all = self.numbers * u32::from(self.connections);
        Ok(Cell {
            check: Check::of(all.into(), &drawn, end),
            refusals,
            micros_per_number: time.as_secs_f64() * 1e6 / f64::from(all),
        })
    }
}

/// The engine's name and version, without the text that packages add.
fn title(conn: &mut AnyConnection) -> QueryResult<String> {
    let engine = conn.engine();
    let function = match engine {
        Engine::Sqlite => "sqlite_version()",
        Engine::Postgres => "current_setting('server_version')",
        Engine::Mysql => "version()",
    };
    let version: String = diesel::select(sql::<Text>(function)).get_result(conn)?;
    let name = match engine {
        Engine::Sqlite => "SQLite",
        Engine::Postgres => "PostgreSQL",
        Engine::Mysql if version.contains("MariaDB") => "MariaDB",
        Engine::Mysql => "MySQL",
    };
    let number = version.split([' ', '-']).next().unwrap_or_default();
    Ok(format!("{name} {number}"))
}
