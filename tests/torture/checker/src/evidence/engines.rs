//! The statements, for each engine.

use std::collections::HashSet;

use anyhow::Result;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Integer, Text};

use super::Evidence;

/// A connection through which the evidence can be read.
pub trait ReadEvidence: Connection + SimpleConnection {
    /// See [`Evidence::read`].
    fn read_evidence(&mut self) -> Result<Evidence>;
}

impl Evidence {
    /// Reads it. Leases of workers that were killed must have had the time to end.
    pub fn read<C: ReadEvidence>(conn: &mut C) -> Result<Self> {
        conn.read_evidence()
    }
}

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = Text)]
    id: String,
}

#[derive(QueryableByName)]
struct Now {
    #[diesel(sql_type = BigInt)]
    now_us: i64,
}

#[derive(QueryableByName)]
struct Key {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Integer)]
    number: i32,
}

/// `$text`: a column of a table of this crate, as text. `$locked`: whether the engine locks rows; if not, it has one
/// writer.
macro_rules! read_evidence {
    ($conn:ty, $text:literal, $now:literal, $locked:ident) => {
        impl ReadEvidence for $conn {
            fn read_evidence(&mut self) -> Result<Evidence> {
                let locks = texts(
                    "SELECT {id} FROM diesel_locks_objects WHERE kept = FALSE",
                    $text,
                );
                let slots = texts(
                    "SELECT {name}, number, {holder}, expires_us FROM diesel_locks_slots",
                    $text,
                );
                let sequences = texts(
                    "SELECT {name}, {scope}, last FROM diesel_locks_sequences",
                    $text,
                );
                let mut evidence = Evidence {
                    counters: sql_query("SELECT id, n, balance FROM torture_counters")
                        .load(self)?,
                    ledger: sql_query("SELECT op, counter, n FROM torture_ledger").load(self)?,
                    resources: sql_query("SELECT id, fence, version FROM torture_resources")
                        .load(self)?,
                    writes: sql_query("SELECT op, resource, version, fence FROM torture_writes")
                        .load(self)?,
                    passes: sql_query("SELECT op, sequence, number FROM torture_passes")
                        .load(self)?,
                    slot_uses: sql_query("SELECT op, semaphore FROM torture_slot_uses")
                        .load(self)?,
                    steps: sql_query("SELECT op, step FROM torture_steps").load(self)?,
                    sequences: sql_query(sequences).load(self)?,
                    transient_locks: sql_query(locks)
                        .load::<Id>(self)?
                        .into_iter()
                        .map(|row| row.id)
                        .collect(),
                    // Before the clock is read: what has ended until then had the time to.
                    slots: sql_query(slots).load(self)?,
                    now_us: sql_query(concat!("SELECT ", $now, " AS now_us"))
                        .get_result::<Now>(self)?
                        .now_us,
                    ..Evidence::default()
                };
                $locked!(self, evidence, $text);
                Ok(evidence)
            }
        }
    };
}

/// Rows that can't be locked now are locked by another session. Outside a transaction the statement keeps no lock.
macro_rules! locked_rows {
    ($conn:ident, $evidence:ident, $text:literal) => {
        let free = texts(
            "SELECT {name}, number FROM diesel_locks_slots FOR UPDATE SKIP LOCKED",
            $text,
        );
        let free = sql_query(free).load::<Key>($conn)?;
        let free: HashSet<_> = free.into_iter().map(|key| (key.name, key.number)).collect();
        let all = $evidence.slots.iter();
        let all = all.map(|slot| (slot.name.clone(), slot.number));
        $evidence.has_server = true;
        $evidence.locked_slots = all.filter(|key| !free.contains(key)).collect();
    };
}

macro_rules! one_writer {
    ($conn:ident, $evidence:ident, $text:literal) => {
        $evidence.somebody_writes = super::sqlite_writer::somebody_writes($conn)?;
    };
}

/// Puts the engine's way to read a column as text in the place of each `{column}`.
fn texts(statement: &str, text: &str) -> String {
    let mut written = String::new();
    for part in statement.split('{') {
        match part.split_once('}') {
            Some((column, rest)) => {
                written += &text.replace("column", column);
                written += rest;
            }
            None => written += part,
        }
    }
    written
}

read_evidence!(
    PgConnection,
    "column",
    "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT",
    locked_rows
);
read_evidence!(
    MysqlConnection,
    "CONVERT(column USING utf8mb4) AS column",
    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    locked_rows
);
read_evidence!(
    SqliteConnection,
    "column",
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000",
    one_writer
);
