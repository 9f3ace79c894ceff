//! What the command line says.

use std::time::Duration;

use anyhow::Result;

use crate::common_options::{self, CommonOptions};

const HELP: &str = "\
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

impl common_options::Part for Part {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("one", Self::One),
        ("many", Self::Many),
        ("transaction", Self::Transaction),
    ];
}

pub(crate) struct Options {
    pub(crate) common: CommonOptions<Part>,
    /// Rounds of each design, and how long one is.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

impl Options {
    pub(crate) fn describe(&self) -> String {
        format!(
            "Rounds of each design, interleaved: {} of {:?}.{}",
            self.rounds,
            self.round,
            self.common.remark(),
        )
    }
}

/// `None` if the user asks for help.
pub(crate) fn from_arguments() -> Result<Option<Options>> {
    let common = CommonOptions::from_arguments(HELP, |_, _| Ok(false))?;
    Ok(common.map(|common| Options {
        rounds: common.rounds.unwrap_or(common.quick_or(5, 50)),
        round: Duration::from_millis(common.quick_or(10, 100)),
        common,
    }))
}
