//! What the command line says.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::support::engine_filter::{Engine, selected_engines};

pub(crate) const HELP: &str = "\
Measures the targets for gap-free sequences and run_transaction, and prints them as Markdown.

  --backends LIST         of postgres, mysql, sqlite; default: DIESEL_LOCKS_BENCH_BACKENDS, or else all
  --only LIST             of one, many, transaction; default: all
  --rounds N              of each design (50, of 100 ms each)
  --quick                 a few seconds, to see that it runs; too short to judge by
  --json                  all figures as one JSON object on the last line

  one   one sequence: 1 and 8 connections
  many  1,000 sequences: 8 connections
  transaction  run_transaction beside Diesel's transaction: 1 connection

Servers: PG_DATABASE_URL and MYSQL_DATABASE_URL (MySQL or MariaDB), set by
  cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite --bench sequences
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    One,
    Many,
    Transaction,
}

pub(crate) struct Options {
    pub(crate) backends: Vec<Engine>,
    parts: Vec<Part>,
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Rounds of each design, and how long one is.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

impl Options {
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "Rounds of each design, interleaved: {} of {:?}.{}",
            self.rounds,
            self.round,
            if self.quick {
                " `--quick`: too short to judge by."
            } else {
                ""
            }
        )
    }
}

/// `None` when help is asked for.
pub(crate) fn from_arguments() -> Result<Option<Options>> {
    let mut arguments = env::args().skip(1);
    let mut backends = None;
    let mut parts = vec![Part::One, Part::Many, Part::Transaction];
    let mut rounds = None;
    let mut quick = false;
    let mut json = false;
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--backends" => backends = Some(value()?),
            "--only" => parts = value()?.split(',').map(part).collect::<Result<_>>()?,
            "--rounds" => rounds = Some(value()?.parse()?),
            "--quick" => quick = true,
            "--json" => json = true,
            "--help" | "-h" => return Ok(None),
            // From `cargo bench`.
            "--bench" => {}
            other => bail!("no option {other}\n\n{HELP}"),
        }
    }
    Ok(Some(Options {
        backends: selected_engines(backends.as_deref())?,
        parts,
        quick,
        json,
        rounds: rounds.unwrap_or(if quick { 5 } else { 50 }),
        round: Duration::from_millis(if quick { 10 } else { 100 }),
    }))
}

fn part(name: &str) -> Result<Part> {
    Ok(match name {
        "one" => Part::One,
        "many" => Part::Many,
        "transaction" => Part::Transaction,
        other => bail!("no part {other:?}; there are one, many and transaction"),
    })
}
