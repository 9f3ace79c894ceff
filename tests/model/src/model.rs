//! The model for the checker.

use stateright::{Model, Property};

use crate::action::{self, Action};
use crate::condition::POSSIBILITIES;
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
