//! The model for the checker, and its runs.

use stateright::{Checker, Expectation, Model, Property};

use crate::action::{self, Action};
use crate::condition::POSSIBILITIES;
use crate::config::Config;
use crate::effect;
use crate::invariant::Invariant;
use crate::protocol::{Goal, Protocol};
use crate::state::State;

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(&self.config)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        action::steps(&self.config, state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = effect::next(&self.config, last, action)?;
        Some(next.canonical(&self.config).0)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.goal {
            Goal::All => {
                let possible = POSSIBILITIES
                    .into_iter()
                    .map(|(name, condition)| Property::sometimes(name, condition));
                Invariant::ALL
                    .map(always)
                    .into_iter()
                    .chain(possible)
                    .collect()
            }
            Goal::Violations(invariant) => vec![always(invariant)],
        }
    }
}

fn always(invariant: Invariant) -> Property<Protocol> {
    Property::always(invariant.name(), invariant.condition())
}

/// What a search found.
#[derive(Debug)]
pub struct Outcome {
    /// All states that can be reached were looked at, and every invariant is kept in all of them.
    pub exhausted: bool,
    /// How many states there are, up to names of processes and ranks of fences and tokens.
    pub states: usize,
    /// How many steps lead from one of them to another.
    pub steps: usize,
    /// How many states are on the longest of the shortest paths from the first.
    pub depth: usize,
    /// The invariants that are broken, and the steps to it.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    /// The possibilities that were found.
    pub possible: Vec<&'static str>,
    /// Those that were not.
    pub impossible: Vec<&'static str>,
}

/// Looks at all states.
pub fn everything(config: Config) -> Outcome {
    run(Protocol {
        config,
        goal: Goal::All,
    })
}

/// The shortest way to break the invariant, if there is one.
pub fn shortest(config: Config, invariant: Invariant) -> Option<Vec<Action>> {
    let outcome = run(Protocol {
        config,
        goal: Goal::Violations(invariant),
    });
    outcome.broken.into_iter().next().map(|(_, path)| path)
}

fn run(protocol: Protocol) -> Outcome {
    // Breadth first, in one thread: the first state found is one of the nearest.
    let checker = protocol.checker().spawn_bfs().join();
    let mut found = checker.discoveries();
    let mut broken = Vec::new();
    let mut possible = Vec::new();
    let mut impossible = Vec::new();
    for property in protocol.properties() {
        let path = found.remove(property.name);
        match (property.expectation, path) {
            (Expectation::Sometimes, Some(_)) => possible.push(property.name),
            (Expectation::Sometimes, None) => impossible.push(property.name),
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                broken.push((property.name, path.into_actions()));
            }
            _ => {}
        }
    }
    Outcome {
        exhausted: checker.is_done() && broken.is_empty(),
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        broken,
        possible,
        impossible,
    }
}
