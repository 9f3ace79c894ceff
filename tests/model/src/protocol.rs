//! What is searched, and for what.

use crate::config::Config;
use crate::invariant::Invariant;

/// What is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Everything.
    All,
    /// A state in which this invariant is broken; the first one that is found is a nearest one.
    Violations(Invariant),
}

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How large, and what is wrong.
    pub config: Config,
    /// What is searched for.
    pub goal: Goal,
}
