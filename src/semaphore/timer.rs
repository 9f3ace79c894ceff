//! A job that a timer starts on every node, and that one node runs per tick.

#[cfg(feature = "r2d2")]
pub(crate) mod blocking;
pub(crate) mod job;
mod node;
#[cfg(feature = "_async_pool")]
pub(crate) mod nonblocking;
