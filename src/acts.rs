//! What a method of this crate does with an engine, and with the closure of the application.

pub(crate) mod administration;
pub(crate) mod cancel_guard;
pub mod closures;
pub(crate) mod events;
#[cfg(feature = "testing")]
pub(crate) mod failures;
#[cfg_attr(not(feature = "metrics"), path = "acts/no_metrics.rs")]
pub(crate) mod metrics;
pub(crate) mod object_lock;
pub(crate) mod retries;
pub(crate) mod several;
pub(crate) mod slot;
pub(crate) mod slot_attempts;
pub(crate) mod slot_queue;
pub(crate) mod transaction;
pub(crate) mod waiting;
