//! What the command line says.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::support::engine_filter::{Engine, selected_engines};

pub(crate) const HELP: &str = "\
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

pub(crate) struct Options {
    pub(crate) backends: Vec<Engine>,
    parts: Vec<Part>,
    pub(crate) quick: bool,
    pub(crate) json: bool,
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
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "Rounds of each variant, interleaved: {} of {:?} uncontended, {} of {:?} contended.{}",
            self.rounds,
            self.round,
            self.contended_rounds,
            self.contended_round,
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
    let mut parts = vec![Part::Uncontended, Part::Contention, Part::Growth];
    let mut rounds = None;
    let mut transient_cycles = None;
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
            "--transient-cycles" => transient_cycles = Some(value()?.parse()?),
            "--quick" => quick = true,
            "--json" => json = true,
            "--help" | "-h" => return Ok(None),
            // From `cargo bench`.
            "--bench" => {}
            other => bail!("no option {other}\n\n{HELP}"),
        }
    }
    let short_or_long = |short, long| if quick { short } else { long };
    Ok(Some(Options {
        backends: selected_engines(backends.as_deref())?,
        parts,
        quick,
        json,
        rounds: rounds.unwrap_or(if quick { 5 } else { 120 }),
        round: Duration::from_millis(if quick { 5 } else { 50 }),
        contended_rounds: if quick { 1 } else { 7 },
        contended_round: Duration::from_millis(if quick { 100 } else { 1000 }),
        kept_cycles: short_or_long(500, 50_000),
        transient_cycles: transient_cycles.unwrap_or(short_or_long(500, 50_000)),
        insert_delete_cycles: short_or_long(500, 10_000),
    }))
}

fn part(name: &str) -> Result<Part> {
    Ok(match name {
        "uncontended" => Part::Uncontended,
        "contention" => Part::Contention,
        "growth" => Part::Growth,
        other => bail!("no part {other:?}; there are uncontended, contention and growth"),
    })
}
