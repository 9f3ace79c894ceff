//! The bodies.

pub(crate) mod contention;
pub(crate) mod endings;
pub(crate) mod events;
pub(crate) mod exclusion;
pub(crate) mod ids;
pub(crate) mod many;
pub(crate) mod nesting;
pub(crate) mod refusals;
pub(crate) mod retention;
pub(crate) mod sequences;
pub(crate) mod slots;
pub(crate) mod tables;
pub(crate) mod transactions;
pub(crate) mod waiting;
