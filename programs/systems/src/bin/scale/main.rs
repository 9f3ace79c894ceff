//! How many statements the waiters for a semaphore send, and how long a slot takes to pass to the next holder.

mod measured;
mod simulation;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use program_support::database::{DatabaseArguments, Program};
use program_support::outcome::{
    OutputArguments, Value, Verdict, json, milliseconds, print, thousandths,
};
use program_support::processes::ChildArguments;
use program_support::terminal;

const PROGRAM: Program = program_support::program!();

/// Simulates processes that wait for a semaphore, or starts them and measures.
///
/// Each process waits for the only slot, holds it for a while, releases it, rests for as long, and waits again. With
/// --renewing-s it holds a slot of its own, and renews the lease. The simulation has the pauses of `acquire_slot` (with the
/// default poll interval of 1 s, or another) and of `SlotRenewer`, and PostgreSQL on two cores, which works for 150 µs on a
/// statement. With --measure the program starts the processes, on the database of --database-url or on a temporary SQLite file,
/// and counts the same.
#[derive(Parser)]
#[command(name = "scale", version)]
struct Options {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    child: ChildArguments,
    /// Start the processes and measure
    #[arg(long)]
    measure: bool,
    /// Simulate too, and fail if the statements or the hand-overs (median) differ by more than this factor
    #[arg(long, value_name = "FACTOR", requires = "measure")]
    within: Option<f64>,
    #[command(flatten)]
    output: OutputArguments,
    /// The number of processes
    #[arg(long, value_name = "N", default_value = "100")]
    processes: NonZeroUsize,
    /// How long a process holds its slot, and rests, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    hold_ms: u64,
    /// How long the run takes, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// A wait ends after this many seconds, as with `Wait::AtMost`, and the process waits again
    #[arg(long, value_name = "S", conflicts_with = "standby")]
    at_most_s: Option<u64>,
    /// Each process holds a slot of its own, and a `SlotRenewer` renews its lease of this many seconds
    #[arg(
        long,
        value_name = "S",
        conflicts_with_all = ["at_most_s", "poll_interval_ms", "standby", "dying_after_s"]
    )]
    renewing_s: Option<u64>,
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
}

/// What was counted in a run.
#[derive(Debug, Default)]
struct Counts {
    statements: u64,
    /// From the release of a slot, or the end of its lease, to its next grant.
    handovers: Vec<Duration>,
}

/// The figures that are compared.
const COMPARED: [&str; 2] = ["statements_per_second", "handover_ms_median"];

/// Whether the figures of two runs differ by this factor at most.
fn agree(factor: f64, measured: &Value, simulated: &Value) -> bool {
    COMPARED.iter().all(|figure| {
        let [one, other] = [measured, simulated].map(|it| it[figure].as_f64().unwrap_or_default());
        one.max(other) <= factor * one.min(other)
    })
}

/// Adds the simulated figures to a measured outcome, and compares them.
fn compare(options: &Options, factor: f64, measured: &mut Value) -> Verdict {
    let simulated = outcome(options, simulation::run(options));
    let verdict = if agree(factor, measured, &simulated) {
        Verdict(0, "measured and simulated agree")
    } else {
        Verdict(1, "measured and simulated differ")
    };
    for figure in COMPARED {
        measured[format!("{figure}_simulated")] = simulated[figure].clone();
    }
    verdict
}

/// The figures of a run.
fn outcome(options: &Options, mut counts: Counts) -> Value {
    counts.handovers.sort_unstable();
    let at = |percent: usize| {
        let position = counts.handovers.len() * percent / 100;
        milliseconds(counts.handovers.get(position).copied().unwrap_or_default())
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_second = counts.statements as f64 / options.seconds.max(1) as f64;
    json!({
        "processes": options.processes,
        "statements_per_second": thousandths(per_second),
        "handovers": counts.handovers.len(),
        "handover_ms_median": at(50),
        "handover_ms_95_percent": at(95),
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.child.is_child {
        terminal::exit_code(PROGRAM.name, measured::run_child(&options))
    } else if options.measure {
        PROGRAM.run(options.database.database_url.as_deref(), |database| {
            let mut measured = outcome(&options, measured::run(&options, database)?);
            let verdict = match options.within {
                Some(factor) => compare(&options, factor, &mut measured),
                None => Verdict(0, "measured"),
            };
            Ok(print(&measured, verdict, options.output.json))
        })
    } else {
        let simulated = outcome(&options, simulation::run(&options));
        print(&simulated, Verdict(0, "simulated"), options.output.json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_agree_within_the_factor() {
        let figures =
            |statements: f64, median: f64| json!({ COMPARED[0]: statements, COMPARED[1]: median });
        let simulated = figures(100.0, 2.0);
        assert!(agree(1.5, &figures(140.0, 1.4), &simulated));
        assert!(!agree(1.5, &figures(160.0, 2.0), &simulated));
        assert!(!agree(1.5, &figures(100.0, 1.2), &simulated));
        assert!(!agree(1.5, &figures(100.0, 0.0), &simulated));
    }
}
