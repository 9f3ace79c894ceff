//! The model for the checker.

use stateright::{Model, Property};

use crate::action::{self, Action};
use crate::effect;
use crate::promise::{POSSIBILITIES, Promise};
use crate::setup::Setup;
use crate::state::State;

/// What is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Everything.
    All,
    /// A state in which this promise is broken; the first one that is found is a nearest one.
    Broken(Promise),
}

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How large, and what is wrong.
    pub setup: Setup,
    /// What is searched for.
    pub goal: Goal,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(&self.setup)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        action::steps(&self.setup, state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = effect::next(&self.setup, last, action)?;
        Some(next.canonical(&self.setup).0)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.goal {
            Goal::All => {
                let possible = POSSIBILITIES
                    .into_iter()
                    .map(|(name, condition)| Property::sometimes(name, condition));
                Promise::ALL
                    .map(always)
                    .into_iter()
                    .chain(possible)
                    .collect()
            }
            Goal::Broken(promise) => vec![always(promise)],
        }
    }
}

fn always(promise: Promise) -> Property<Protocol> {
    Property::always(promise.name(), promise.condition())
}
