//! Names of semaphores and sequences, and texts of holders.

use std::fmt;

use thiserror::Error;

use crate::limits::MAX_NAME_CHARS;

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameKind {
    /// A semaphore.
    Semaphore,
    /// The holder of a slot. May be empty.
    Holder,
    /// A sequence.
    Sequence,
    /// The key of a sequence ([`Sequence::for_key`](crate::Sequence::for_key)).
    SequenceKey,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Semaphore => "the name of a semaphore",
            Self::Holder => "the text of a holder",
            Self::Sequence => "the name of a sequence",
            Self::SequenceKey => "the key of a sequence",
        })
    }
}

/// The rule that a name breaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("{subject} has 1 to {MAX_NAME_CHARS} characters; this one is empty")]
    Empty {
        /// The kind of the name.
        subject: NameKind,
    },
    /// The text is longer than [`MAX_NAME_CHARS`].
    #[error("{subject} has at most {MAX_NAME_CHARS} characters; this one has {chars}: {text:?}")]
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
}

pub(crate) fn validate(subject: NameKind, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() && subject != NameKind::Holder {
        return Err(InvalidName::Empty { subject });
    }
    if text.contains('\0') {
        let text = text.to_owned();
        return Err(InvalidName::Nul { subject, text });
    }
    let chars = text.chars().count();
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
