//! The details of errors that [`Error`] contains.

#[cfg(feature = "_async_pool")]
pub(crate) mod async_pool;
pub(crate) mod classify;
mod conversions;
pub(crate) mod definition;
pub(crate) mod human;
mod predicates;
pub(crate) mod result;
pub(crate) mod texts;

use definition::Error;

#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use async_pool::{AsyncPoolError, PoolStep};

pub use crate::name::{InvalidName, NameKind};
pub use crate::object_lock::id::InvalidObjectId;
