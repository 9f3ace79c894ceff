//! `cargo run --release -p lease-model`: checks the slot protocol, or shows how a mutant breaks it.

use std::process::ExitCode;

use clap::Parser;
use lease_model::config::{Clock, Config, Mutant};
use lease_model::invariant::Invariant;
use lease_model::search::{self, Outcome};
use lease_model::trace;

/// Searches a model of diesel-locks' slots for broken invariants, through all states.
///
/// Ends with 1 when one is broken.
#[derive(Parser)]
#[command(name = "lease-model")]
struct Arguments {
    /// Shows the shortest way in which this mistake breaks an invariant.
    #[arg(long, value_enum)]
    mutant: Option<Mutant>,
    /// What the database's clock does beside running.
    #[arg(long, value_enum, default_value = "steady", conflicts_with = "mutant")]
    clock: Clock,
    /// How many processes, 1 to 3.
    #[arg(long, default_value_t = 3, conflicts_with = "mutant",
        value_parser = clap::value_parser!(u8).range(1..=3))]
    processes: u8,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(mutant) = arguments.mutant {
        let (config, invariant) = mutant.breaks();
        return show(config, invariant);
    }
    let slots = search::everything(Config::SLOTS.at(arguments.clock, arguments.processes.into()));
    report("slots: 2 permits, lowered to 1 and raised", &slots);
    let writes = search::everything(Config::WRITES.at(arguments.clock, arguments.processes.into()));
    report("writes: 1 permit, its holders write", &writes);
    let fences = Config::FENCES.at(arguments.clock, arguments.processes.min(2).into());
    let fences = search::everything(fences);
    report("fences: the same slots, fences across them", &fences);
    if slots.exhausted && writes.exhausted && fences.exhausted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn show(config: Config, invariant: Invariant) -> ExitCode {
    let Some(path) = search::shortest(config, invariant) else {
        println!("\"{}\" is kept", invariant.name());
        return ExitCode::SUCCESS;
    };
    println!(
        "\"{}\" is broken in {} steps:",
        invariant.name(),
        path.len()
    );
    for line in trace::describe(&config, &path) {
        println!("  {line}");
    }
    ExitCode::FAILURE
}

fn report(name: &str, outcome: &Outcome) {
    let (states, steps, depth) = (outcome.states, outcome.steps, outcome.depth);
    println!("{name}: {states} states, {steps} steps, depth {depth}");
    for invariant in Invariant::ALL.map(Invariant::name) {
        let broken = outcome.broken.iter().any(|(name, _)| *name == invariant);
        println!("  {}: {invariant}", if broken { "BROKEN" } else { "kept" });
    }
    for possible in &outcome.possible {
        println!("  seen: {possible}");
    }
    for impossible in &outcome.impossible {
        println!("  not seen: {impossible}");
    }
}
