//! How a transaction fails after it has drawn its number.

use rand::RngExt;
use rand::rngs::StdRng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFailure {
    /// The closure returns an error.
    Error,
    /// The closure panics.
    Panic,
    /// The connection is lost.
    Disconnection,
}

impl InjectedFailure {
    /// One of the failures with this probability, otherwise `None`.
    pub(crate) fn by_chance(percent: u32, chance: &mut StdRng) -> Option<Self> {
        let all = [Self::Error, Self::Panic, Self::Disconnection];
        (chance.random_range(0..100) < percent).then(|| all[chance.random_range(0..all.len())])
    }
}
