//! What callers pass and get: plain values, without a connection.

pub(crate) mod fence;
pub(crate) mod held_object_lock;
pub(crate) mod lease;
pub(crate) mod list_options;
pub(crate) mod lock_request;
pub(crate) mod object_id;
#[cfg(feature = "_pool")]
pub(crate) mod request_info;
pub(crate) mod retry_policy;
pub(crate) mod sequence;
pub(crate) mod slot;
pub(crate) mod transaction_options;
