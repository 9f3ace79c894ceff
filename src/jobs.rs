//! What runs in the background: renewals, elections, timers.

pub(crate) mod candidate;
pub(crate) mod guard;
pub(crate) mod participant;
pub(crate) mod renewer;
pub(crate) mod timer_job;
pub(crate) mod timer_node;
