//! `cargo run --release -p lease-model`: checks the slot protocol, or shows how a mutant breaks it.

use std::process::ExitCode;

use clap::Parser;
use lease_model::promise::Promise;
use lease_model::search::{self, Outcome};
use lease_model::setup::{Clock, Mutant, Setup};
use lease_model::story;

/// Searches a model of diesel-locks' slots for broken promises, through all states.
///
/// Ends with 1 when one is broken.
#[derive(Parser)]
#[command(name = "lease-model")]
struct Arguments {
    /// Shows the shortest way in which this mistake breaks a promise.
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
        let (setup, promise) = mutant.breaks();
        return show(setup, promise);
    }
    let slots = search::everything(Setup::SLOTS.at(arguments.clock, arguments.processes.into()));
    report("slots: 2 permits, lowered to 1 and raised", &slots);
    let writes = search::everything(Setup::WRITES.at(arguments.clock, arguments.processes.into()));
    report("writes: 1 permit, its holders write", &writes);
    let fences = Setup::FENCES.at(arguments.clock, arguments.processes.min(2).into());
    let fences = search::everything(fences);
    report("fences: the same slots, fences across them", &fences);
    if slots.exhausted && writes.exhausted && fences.exhausted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn show(setup: Setup, promise: Promise) -> ExitCode {
    let Some(path) = search::shortest(setup, promise) else {
        println!("\"{}\" is kept", promise.name());
        return ExitCode::SUCCESS;
    };
    println!("\"{}\" is broken in {} steps:", promise.name(), path.len());
    for line in story::tell(&setup, &path) {
        println!("  {line}");
    }
    ExitCode::FAILURE
}

fn report(name: &str, outcome: &Outcome) {
    let (states, steps, depth) = (outcome.states, outcome.steps, outcome.depth);
    println!("{name}: {states} states, {steps} steps, depth {depth}");
    for promise in Promise::ALL.map(Promise::name) {
        let broken = outcome.broken.iter().any(|(name, _)| *name == promise);
        println!("  {}: {promise}", if broken { "BROKEN" } else { "kept" });
    }
    for possible in &outcome.possible {
        println!("  seen: {possible}");
    }
    for impossible in &outcome.impossible {
        println!("  not seen: {impossible}");
    }
}
