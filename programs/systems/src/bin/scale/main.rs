//! How many statements the waiters for a semaphore send, and how long a slot takes to pass to the next holder.

mod measured;
mod simulation;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use program_support::database::{DatabaseArguments, Program};
use program_support::outcome::{OutputArguments, Verdict, print, tenths};
use program_support::terminal;
use serde::{Deserialize, Serialize};

const PROGRAM: Program = program_support::program!();

/// Simulates processes that wait for a semaphore, or starts them and measures.
///
/// Each process waits for a slot, holds it for a while, releases it, rests for as long, and waits again. The simulation has the pauses of
/// `acquire_slot` (with the default poll interval of 1 s, or another), and PostgreSQL, which works on as many statements
/// at a time as it has cores. With --measure the program starts the processes, on the database of --database-url or on a
/// temporary SQLite file, and counts the same.
#[derive(Parser)]
#[command(
    name = "scale",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Role {
    /// A process started by this program.
    #[command(hide = true)]
    Waiter,
}

#[derive(Args)]
struct Options {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    scenario: Scenario,
    /// Start the processes and measure
    #[arg(long)]
    measure: bool,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Clone, Debug, Args, Deserialize, Serialize)]
struct Scenario {
    /// The number of processes
    #[arg(long, value_name = "N", default_value = "100")]
    processes: NonZeroUsize,
    /// The number of permits of the semaphore
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    permits: u32,
    /// How long a process holds its slot, and rests, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    hold_ms: u64,
    /// How long the run takes, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// The poll interval, in milliseconds (simulation only)
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1000,
        conflicts_with = "measure"
    )]
    poll_interval_ms: u64,
    /// All pauses are the poll interval, as those of `run_as_leader` (simulation only)
    #[arg(long, conflicts_with = "measure")]
    standby: bool,
    /// Holders die, and their leases of this many seconds end (simulation only)
    #[arg(long, value_name = "S", conflicts_with = "measure")]
    dying_after_s: Option<u64>,
    /// How long the server works on a statement, in microseconds (simulation only)
    #[arg(
        long,
        value_name = "US",
        default_value_t = 150,
        conflicts_with = "measure"
    )]
    statement_us: u64,
    /// On how many statements the server works at a time (simulation only)
    #[arg(
        long,
        value_name = "N",
        default_value = "2",
        conflicts_with = "measure"
    )]
    cores: NonZeroUsize,
}

/// What was counted in a run.
#[derive(Debug, Default)]
struct Counts {
    statements: u64,
    /// From the release of a slot, or the end of its lease, to its next grant.
    handovers: Vec<Duration>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    processes: usize,
    permits: u32,
    statements_per_second: f64,
    handovers: usize,
    handover_ms_median: f64,
    handover_ms_95_percent: f64,
}

impl Outcome {
    fn new(scenario: &Scenario, mut counts: Counts) -> Self {
        counts.handovers.sort_unstable();
        let at = |percent: usize| {
            let position = counts.handovers.len() * percent / 100;
            let handover = counts.handovers.get(position).copied();
            tenths(handover.unwrap_or_default().as_secs_f64() * 1000.0)
        };
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let per_second = counts.statements as f64 / scenario.seconds.max(1) as f64;
        Self {
            processes: scenario.processes.get(),
            permits: scenario.permits,
            statements_per_second: tenths(per_second),
            handovers: counts.handovers.len(),
            handover_ms_median: at(50),
            handover_ms_95_percent: at(95),
        }
    }
}

fn main() -> ExitCode {
    let Arguments { role, options } = Arguments::parse();
    let scenario = &options.scenario;
    let finish = |counts, verdict| -> Result<ExitCode> {
        let outcome = Outcome::new(scenario, counts);
        print(&outcome, Verdict::Right(verdict), options.output.json)?;
        Ok(ExitCode::SUCCESS)
    };
    match role {
        Some(Role::Waiter) => terminal::exit_code(PROGRAM.name, measured::wait_in_turn()),
        None if options.measure => PROGRAM
            .run(options.database.database_url.as_deref(), |location| {
                finish(measured::run(scenario, location.database())?, "measured")
            }),
        None => terminal::exit_code(PROGRAM.name, finish(simulation::run(scenario), "simulated")),
    }
}
