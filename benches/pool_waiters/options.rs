//! What the command line says.

use std::time::Duration;

use anyhow::Result;

use crate::common_options::{self, CommonOptions};

const HELP: &str = "\
Measures waits with a connection of a pool beside waits without one, and prints them as Markdown.

  --backends LIST         of postgres, mysql, sqlite; default: DIESEL_LOCKS_BENCH_BACKENDS, or else all
  --only LIST             of turns, held, shared; default: all
  --waiters LIST          threads (8,56,200)
  --pool N                connections of the pool (16)
  --rounds N              of each way to wait (5, of 1500 ms each)
  --quick                 a few seconds, to see that it runs; too short to judge by
  --json                  all figures as one JSON object on the last line

  turns      all threads run short transactions under one lock, or one slot
  held       all threads wait while another connection holds the lock, or the slot
  shared     two processes of 8 threads compete for it

Servers: PG_DATABASE_URL and MYSQL_DATABASE_URL (MySQL or MariaDB), set by
  cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite,r2d2 --bench pool_waiters
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Turns,
    Held,
    Shared,
}

impl common_options::Part for Part {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("turns", Self::Turns),
        ("held", Self::Held),
        ("shared", Self::Shared),
    ];
}

pub(crate) struct Options {
    pub(crate) common: CommonOptions<Part>,
    pub(crate) waiters: Vec<usize>,
    pub(crate) pool: u32,
    /// Rounds of each way to wait, and how long one is.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

impl Options {
    pub(crate) fn describe(&self) -> String {
        format!(
            "A pool of {}. Rounds of each way to wait, interleaved: {} of {:?}.{}",
            self.pool,
            self.rounds,
            self.round,
            self.common.remark(),
        )
    }
}

/// `None` if the user asks for help.
pub(crate) fn from_arguments() -> Result<Option<Options>> {
    let mut waiters = vec![8, 56, 200];
    let mut pool = 16;
    let common = CommonOptions::from_arguments(HELP, |argument, value| {
        match argument {
            "--waiters" => {
                waiters = value()?
                    .split(',')
                    .map(|number| Ok(number.parse()?))
                    .collect::<Result<_>>()?;
            }
            "--pool" => pool = value()?.parse()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(common.map(|common| Options {
        rounds: common.rounds.unwrap_or(common.quick_or(1, 5)),
        round: Duration::from_millis(common.quick_or(300, 1500)),
        waiters,
        pool,
        common,
    }))
}
