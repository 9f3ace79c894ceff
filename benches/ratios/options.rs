//! What the command line says.

use std::time::Duration;

use anyhow::Result;

use crate::common_options::{self, CommonOptions};

const HELP: &str = "\
Measures the targets for speed and prints them as Markdown.

  --backends LIST         of postgres, mysql, sqlite; default: DIESEL_LOCKS_BENCH_BACKENDS, or else all
  --only LIST             of uncontended, contention, growth; default: all
  --rounds N              of each variant, uncontended (120, of 50 ms each)
  --transient-cycles N    of a transient lock under an old snapshot (50000; they get slower)
  --quick                 a few seconds, to see that it runs; too short to judge by
  --json                  all figures as one JSON object on the last line

Servers: PG_DATABASE_URL and MYSQL_DATABASE_URL (MySQL or MariaDB), set by
  cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite --bench ratios
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Uncontended,
    Contention,
    Growth,
}

impl common_options::Part for Part {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("uncontended", Self::Uncontended),
        ("contention", Self::Contention),
        ("growth", Self::Growth),
    ];
}

pub(crate) struct Options {
    pub(crate) common: CommonOptions<Part>,
    /// Uncontended: rounds of each variant, and how long one is.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// Rounds for eight connections on one id, and how long one is.
    pub(crate) contended_rounds: usize,
    pub(crate) contended_round: Duration,
    /// Cycles under an old snapshot, by variant.
    pub(crate) kept_cycles: u32,
    pub(crate) transient_cycles: u32,
    pub(crate) insert_delete_cycles: u32,
}

impl Options {
    pub(crate) fn describe(&self) -> String {
        format!(
            "Rounds of each variant, interleaved: {} of {:?} uncontended, {} of {:?} contended.{}",
            self.rounds,
            self.round,
            self.contended_rounds,
            self.contended_round,
            self.common.remark(),
        )
    }
}

/// `None` if the user asks for help.
pub(crate) fn from_arguments() -> Result<Option<Options>> {
    let mut transient_cycles = None;
    let common = CommonOptions::from_arguments(HELP, |argument, value| {
        if argument != "--transient-cycles" {
            return Ok(false);
        }
        transient_cycles = Some(value()?.parse()?);
        Ok(true)
    })?;
    Ok(common.map(|common| Options {
        rounds: common.rounds.unwrap_or(common.quick_or(5, 120)),
        round: Duration::from_millis(common.quick_or(5, 50)),
        contended_rounds: common.quick_or(1, 7),
        contended_round: Duration::from_millis(common.quick_or(100, 1000)),
        kept_cycles: common.quick_or(500, 50_000),
        transient_cycles: transient_cycles.unwrap_or(common.quick_or(500, 50_000)),
        insert_delete_cycles: common.quick_or(500, 10_000),
        common,
    }))
}
