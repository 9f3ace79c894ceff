//! What the command line says.

use std::time::Duration;

use anyhow::Result;

use crate::common_options::{self, CommonOptions};

const HELP: &str = "\
Measures the targets for semaphores and prints them as Markdown.

  --backends LIST         of postgres, mysql, sqlite; default: DIESEL_LOCKS_BENCH_BACKENDS, or else all
  --only LIST             of hot, contended, many, single, permits, growth, waiting, guards;
                          default: all
  --rounds N              of each design (10, of 500 ms each)
  --quick                 a few seconds, to see that it runs; too short to judge by
  --json                  all figures as one JSON object on the last line

  hot        one semaphore of 8 permits: 1, 8 and 32 connections
  contended  8, 32 and 128 connections that wait for one of 8 slots
  many       1,000 semaphores of 8 permits: 8 connections
  single     one semaphore of one permit: 1 and 8 connections
  permits    10,000 permits, 9,990 of them held, beside 10 permits: 1 and 8 connections
  growth     10,000 cycles while another session holds an old snapshot
  waiting    one permit, 16 connections that wait for it
  guards     1,000 slots held by guards for a minute: statements and processor time (Linux)

Servers: PG_DATABASE_URL and MYSQL_DATABASE_URL (MySQL or MariaDB), set by
  cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite,r2d2 --bench semaphores
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Hot,
    Contended,
    Many,
    Single,
    Permits,
    Growth,
    Waiting,
    Guards,
}

impl common_options::Part for Part {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("hot", Self::Hot),
        ("contended", Self::Contended),
        ("many", Self::Many),
        ("single", Self::Single),
        ("permits", Self::Permits),
        ("growth", Self::Growth),
        ("waiting", Self::Waiting),
        ("guards", Self::Guards),
    ];
}

pub(crate) struct Options {
    pub(crate) common: CommonOptions<Part>,
    /// Rounds of each design, and how long one is.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// Cycles under an old snapshot.
    pub(crate) growth: u32,
    /// How long others wait for the slot.
    pub(crate) waiting: Duration,
    /// How long guards are held.
    pub(crate) guards: Duration,
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
        rounds: common.rounds.unwrap_or(common.quick_or(1, 10)),
        round: Duration::from_millis(common.quick_or(50, 500)),
        growth: common.quick_or(500, 10_000),
        waiting: Duration::from_secs(common.quick_or(2, 20)),
        guards: Duration::from_secs(common.quick_or(1, 60)),
        common,
    }))
}
