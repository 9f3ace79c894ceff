//! The protocol as it is keeps every promise, in all states that can be reached.

use lease_model::search::{self, Outcome};
use lease_model::setup::{Clock, Setup};

const OF_WRITES: [&str; 2] = [
    "a slot changes hands while its last holder is about to write",
    "a stale write is refused",
];
const OF_LOWERING: [&str; 2] = [
    "the number is lowered while a slot above it is held",
    "a late refresh above a lowered number makes one holder more",
];

fn searched(setup: Setup) -> Outcome {
    let outcome = search::everything(setup);
    let (states, steps, depth) = (outcome.states, outcome.steps, outcome.depth);
    println!("{setup:?}: {states} states, {steps} steps, depth {depth}");
    outcome
}

fn broken(outcome: &Outcome) -> Vec<&'static str> {
    outcome.broken.iter().map(|(name, _)| *name).collect()
}

#[test]
fn two_permits_lowered_and_raised() {
    let outcome = searched(Setup::SLOTS);
    assert_eq!(broken(&outcome), [""; 0]);
    assert!(outcome.exhausted);
    assert_eq!(outcome.impossible, OF_WRITES);
}

#[test]
fn holders_of_one_permit_write() {
    let outcome = searched(Setup::WRITES);
    assert_eq!(broken(&outcome), [""; 0]);
    assert!(outcome.exhausted);
    assert_eq!(outcome.impossible, OF_LOWERING);
}

/// "Leases last longer by as much."
#[test]
fn a_clock_that_is_set_back_breaks_nothing() {
    for setup in [Setup::SLOTS, Setup::WRITES] {
        let outcome = searched(setup.at(Clock::SetBack, 2));
        assert_eq!(broken(&outcome), [""; 0]);
        assert!(outcome.exhausted);
    }
}

/// "Two may hold one slot until the first looks: the fence tells them apart."
#[test]
fn a_clock_that_is_set_forward_leaves_it_to_the_fence() {
    for setup in [Setup::SLOTS, Setup::WRITES] {
        let outcome = searched(setup.at(Clock::SetForward, 2));
        assert_eq!(
            broken(&outcome),
            ["one holder per slot", "belief is backed"]
        );
    }
}
