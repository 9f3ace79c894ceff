//! Errors. `definition`: the type; `conversions`: what they say of themselves; `classify`: what a server's message means; `limits`,
//! `wait`. Here are the checks of names, ids and texts.

#[cfg(feature = "_async_pool")]
mod async_pool;
pub(crate) mod classify;
pub(crate) mod conversions;
pub(crate) mod definition;
pub mod limits;
pub(crate) mod texts;
pub(crate) mod wait;

use std::fmt;

use crate::error::definition::Error;
use crate::error::limits::MAX_NAME_CHARS;

#[cfg(feature = "_async_pool")]
pub use crate::error::async_pool::{AsyncPoolError, PoolStep};

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NameKind {
    /// An object's id.
    ObjectId,
    /// A semaphore.
    Semaphore,
    /// The holder of a slot. May be empty.
    Holder,
    /// The data of a holder. May be empty.
    Data,
    /// A sequence.
    Sequence,
    /// The key of a sequence ([`Sequence::for_key`](crate::Sequence::for_key)).
    SequenceKey,
}

impl NameKind {
    /// Checks a name of this kind.
    pub(crate) fn check(self, text: &str) -> Result<(), InvalidName> {
        if text.is_empty() && !matches!(self, Self::Holder | Self::Data) {
            return Err(InvalidName::Empty { subject: self });
        }
        let (subject, chars) = (self, text.chars().count());
        if text.contains('\0') {
            let text = text.to_owned();
            return Err(InvalidName::Nul { subject, text });
        }
        if chars > MAX_NAME_CHARS {
            let text = text.to_owned();
            return Err(InvalidName::TooLong {
                subject,
                text,
                chars,
            });
        }
        Ok(())
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ObjectId => "an object id",
            Self::Semaphore => "the name of a semaphore",
            Self::Holder => "the text of a holder",
            Self::Data => "the data of a holder",
            Self::Sequence => "the name of a sequence",
            Self::SequenceKey => "the key of a sequence",
        })
    }
}

/// The rule that a name or an object id breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("{subject} has 1 to {MAX_NAME_CHARS} characters; this one is empty")]
    Empty {
        /// The kind of the name.
        subject: NameKind,
    },
    /// The text is longer than [`MAX_NAME_CHARS`].
    #[error(
        "{subject} has {} {MAX_NAME_CHARS} characters; this one has {chars}: {text:?}",
        if *subject == NameKind::ObjectId { "1 to" } else { "at most" }
    )]
    TooLong {
        /// The kind of the name.
        subject: NameKind,
        /// The text.
        text: String,
        /// Its length in characters.
        chars: usize,
    },
    /// The text contains a NUL character, which PostgreSQL can't store.
    #[error("{subject} has no NUL character; this one has one: {text:?}")]
    Nul {
        /// The kind of the name.
        subject: NameKind,
        /// The text.
        text: String,
    },
    /// The entity given to [`ObjectId::new`](crate::ObjectId::new) contains `:`, so that another pair could give the same id.
    #[error("the entity of an object id has no ':'; this one has one: {entity:?}")]
    EntityWithColon {
        /// The entity's name.
        entity: String,
    },
    /// The entity or the key given to [`ObjectId::new`](crate::ObjectId::new) is empty.
    #[error("an object id of entity and key needs both; one is empty: {id:?}")]
    EmptyPart {
        /// Entity and key, with the `:` between.
        id: String,
    },
}
