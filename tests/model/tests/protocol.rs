//! The protocol as it is keeps every invariant, in all states that can be reached.

use lease_model::config::{Clock, Config};
use lease_model::search::{self, Outcome};

const OF_WRITES: [&str; 2] = [
    "a slot changes hands while its last holder is about to write",
    "a stale write is refused",
];
const OF_LOWERING: [&str; 2] = [
    "the number is lowered while a slot above it is held",
    "a late renewal above a lowered number makes one holder more",
];
/// The only situation that shows whether a clock jumps backwards.
const OF_SETTING_BACK: &str = "a lease lasts longer than it was to";

/// States, steps between them, depth.
type Size = [usize; 3];

const SLOTS: Size = [647_697, 6_048_327, 40];
const WRITES: Size = [328_154, 3_542_896, 38];
const FENCES: Size = [66_972, 448_773, 31];
/// Of slots and of writes.
const SET_BACK: [Size; 2] = [[60_614, 490_153, 31], [24_722, 217_889, 32]];
const SET_FORWARD: [Size; 2] = [[61_528, 490_844, 27], [58_158, 543_545, 34]];

/// All states, of which there are as many as the document says.
fn searched(config: Config, size: Size) -> Outcome {
    let outcome = search::everything(config);
    let found = [outcome.states, outcome.steps, outcome.depth];
    assert_eq!(found, size, "states, steps and depth of {config:?}");
    outcome
}

fn broken(outcome: &Outcome) -> Vec<&'static str> {
    outcome.broken.iter().map(|(name, _)| *name).collect()
}

#[test]
fn two_permits_lowered_and_raised() {
    let outcome = searched(Config::SLOTS, SLOTS);
    assert_eq!(broken(&outcome), [""; 0]);
    assert!(outcome.exhausted);
    let [first, second] = OF_WRITES;
    assert_eq!(outcome.impossible, [first, second, OF_SETTING_BACK]);
}

#[test]
fn holders_of_one_permit_write() {
    let outcome = searched(Config::WRITES, WRITES);
    assert_eq!(broken(&outcome), [""; 0]);
    assert!(outcome.exhausted);
    let [first, second] = OF_LOWERING;
    assert_eq!(outcome.impossible, [first, second, OF_SETTING_BACK]);
}

#[test]
fn fences_grow_across_slots() {
    let outcome = searched(Config::FENCES, FENCES);
    assert_eq!(broken(&outcome), [""; 0]);
    assert!(outcome.exhausted);
}

/// "Leases last longer by as much."
#[test]
fn a_clock_that_is_set_back_breaks_nothing() {
    for (config, size) in [Config::SLOTS, Config::WRITES].into_iter().zip(SET_BACK) {
        let outcome = searched(config.at(Clock::SetBack, 2), size);
        assert_eq!(broken(&outcome), [""; 0]);
        assert!(outcome.exhausted);
        assert!(outcome.possible.contains(&OF_SETTING_BACK));
    }
}

/// Two processes may hold one slot until the first checks: their fences differ.
#[test]
fn a_clock_that_is_set_forward_leaves_it_to_the_fence() {
    for (config, size) in [Config::SLOTS, Config::WRITES].into_iter().zip(SET_FORWARD) {
        let outcome = searched(config.at(Clock::SetForward, 2), size);
        assert_eq!(
            broken(&outcome),
            ["one holder per slot", "a holder implies a row"]
        );
    }
}

/// As the document writes it, with thousands set apart.
fn written(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", written(thousands), number % 1000),
    }
}

#[test]
fn the_document_says_how_large_the_searches_are() {
    let document = include_str!("../../../docs/lease-model.md");
    let one = |size: Size| format!(" | {} |", size.map(written).join(" | "));
    let two = |[slots, writes]: [Size; 2]| {
        let [states, steps, _] =
            [0, 1, 2].map(|of| [slots[of], writes[of]].map(written).join("; "));
        format!(" | {states} | {steps} | {}, {} |", slots[2], writes[2])
    };
    for (run, sizes) in [
        ("| slots: 3 processes", one(SLOTS)),
        ("| writes: 3 processes", one(WRITES)),
        ("| fences: 2 processes", one(FENCES)),
        ("| `--clock set-back", two(SET_BACK)),
        ("| `--clock set-forward", two(SET_FORWARD)),
    ] {
        let row = document.lines().find(|line| line.starts_with(run));
        let row = row.unwrap_or_else(|| panic!("there is no row {run:?}"));
        assert!(row.ends_with(&sizes), "{row} does not end with {sizes}");
    }
}
