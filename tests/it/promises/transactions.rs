//! Transactions with levels, modes and retries.

pub(crate) mod aborted;
pub(crate) mod levels;
pub(crate) mod retries;
pub(crate) mod upgrades;
