//! What the command line says.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::support::engine_filter::{Engine, selected_engines};

pub(crate) const HELP: &str = "\
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

pub(crate) struct Options {
    pub(crate) backends: Vec<Engine>,
    parts: Vec<Part>,
    pub(crate) waiters: Vec<usize>,
    pub(crate) pool: u32,
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Rounds of each way to wait, and how long one is.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

impl Options {
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "A pool of {}. Rounds of each way to wait, interleaved: {} of {:?}.{}",
            self.pool,
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
    let mut parts = vec![Part::Turns, Part::Held, Part::Shared];
    let mut waiters = vec![8, 56, 200];
    let mut pool = 16;
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
            "--waiters" => {
                waiters = value()?
                    .split(',')
                    .map(|number| Ok(number.parse()?))
                    .collect::<Result<_>>()?;
            }
            "--pool" => pool = value()?.parse()?,
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
        waiters,
        pool,
        quick,
        json,
        rounds: rounds.unwrap_or(if quick { 1 } else { 5 }),
        round: Duration::from_millis(if quick { 300 } else { 1500 }),
    }))
}

fn part(name: &str) -> Result<Part> {
    Ok(match name {
        "turns" => Part::Turns,
        "held" => Part::Held,
        "shared" => Part::Shared,
        other => bail!("no part {other:?}; there are turns, held and shared"),
    })
}
