//! Names of semaphores and sequences, and the text that a holder gives.

use std::fmt;

use thiserror::Error;

/// The longest name, and the longest holder's text, in characters (Unicode scalar values).
pub const MAX_NAME_CHARS: usize = 255;

/// What a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameKind {
    /// A semaphore.
    Semaphore,
    /// The holder of a slot; may be empty.
    Holder,
    /// A sequence.
    Sequence,
    /// Whose sequence it is: the key of [`Sequence::new`](crate::Sequence::new).
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

/// Why a text can't be a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("{subject} has 1 to {MAX_NAME_CHARS} characters; this one is empty")]
    Empty {
        /// What it was to name.
        subject: NameKind,
    },
    /// The text is longer than [`MAX_NAME_CHARS`].
    #[error("{subject} has at most {MAX_NAME_CHARS} characters; this one has {chars}: {text:?}")]
    TooLong {
        /// What it was to name.
        subject: NameKind,
        /// The text.
        text: String,
        /// Its length in characters.
        chars: usize,
    },
    /// The text contains a NUL character, which PostgreSQL can't store.
    #[error("{subject} has no NUL character; this one has: {text:?}")]
    Nul {
        /// What it was to name.
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
