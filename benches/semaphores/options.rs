//! What the command line says.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::support::engine_filter::{Engine, selected_engines};

pub(crate) const HELP: &str = "\
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

pub(crate) struct Options {
    pub(crate) backends: Vec<Engine>,
    parts: Vec<Part>,
    pub(crate) quick: bool,
    pub(crate) json: bool,
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
    let mut parts = vec![
        Part::Hot,
        Part::Contended,
        Part::Many,
        Part::Single,
        Part::Permits,
        Part::Growth,
        Part::Waiting,
        Part::Guards,
    ];
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
        rounds: rounds.unwrap_or(if quick { 1 } else { 10 }),
        round: Duration::from_millis(if quick { 50 } else { 500 }),
        growth: if quick { 500 } else { 10_000 },
        waiting: Duration::from_secs(if quick { 2 } else { 20 }),
        guards: Duration::from_secs(if quick { 1 } else { 60 }),
    }))
}

fn part(name: &str) -> Result<Part> {
    Ok(match name {
        "hot" => Part::Hot,
        "contended" => Part::Contended,
        "many" => Part::Many,
        "single" => Part::Single,
        "permits" => Part::Permits,
        "growth" => Part::Growth,
        "waiting" => Part::Waiting,
        "guards" => Part::Guards,
        other => {
            bail!(
                "no part {other:?}; there are hot, contended, many, single, permits, growth, waiting and guards"
            )
        }
    })
}
