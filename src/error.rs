//! The details of errors that [`Error`] contains.

#[cfg(feature = "_async_pool")]
pub(crate) mod async_pool;
pub(crate) mod classify;
pub(crate) mod conversions;
pub(crate) mod definition;
mod invalid;
pub mod limits;
mod predicates;
pub(crate) mod texts;
pub(crate) mod wait;

use crate::error::definition::Error;

#[cfg(feature = "_async_pool")]
pub use crate::error::async_pool::{AsyncPoolError, PoolStep};

pub use crate::error::invalid::{InvalidName, InvalidObjectId, NameKind};
