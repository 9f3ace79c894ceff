//! Transactions with levels, modes and retries.

pub(crate) mod aborted;
pub(crate) mod depth;
pub(crate) mod isolation_levels;
pub(crate) mod retries;
pub(crate) mod untracked;
pub(crate) mod upgrades;
