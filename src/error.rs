//! The details of errors that [`Error`] contains.

pub(crate) mod classify;
mod conversions;
pub(crate) mod definition;
pub(crate) mod human;
mod predicates;
pub(crate) mod result;

use definition::Error;

pub use crate::name::{InvalidName, NameKind};
pub use crate::object_lock::id::InvalidObjectId;
