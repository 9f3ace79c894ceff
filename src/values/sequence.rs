//! A sequence: its name, key and start, and what is in the database.

use std::fmt;

use crate::Error;
use crate::error::NameKind;
use crate::error::limits::FIRST_NUMBER;

/// A gap-free sequence of numbers: a name, and a key if each of many objects has its own sequence.
///
/// Numbers go from 1, or from [`start_with`](Self::start_with), to `i64::MAX`. The first draw creates the sequence. Name and key
/// have 1 to [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters each, without NUL, and are compared as bytes.
///
/// ```
/// use diesel_locks::Sequence;
///
/// let passes = Sequence::new("pass").for_key(4711); // those of the meeting 4711
/// let invoices = Sequence::new("invoice").start_with(1000);
/// assert_eq!((passes.name(), passes.key()), ("pass", Some("4711")));
/// assert_eq!((invoices.key(), invoices.start()), (None, 1000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias("counter", "auto increment", "AUTO_INCREMENT"))]
#[doc(alias("invoice number", "gapless"))]
pub struct Sequence {
    name: String,
    key: Option<String>,
    start: i64,
}

impl Sequence {
    /// Creates the value for the sequence of this name, without a key. The name may be an enum of the application.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            key: None,
            start: FIRST_NUMBER,
        }
    }

    /// Sets the key: the sequence of one object among many, such as the passes of a meeting.
    #[must_use]
    #[doc(alias("scope", "partition"))]
    pub fn for_key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// Sets the number of the first draw, at least 1. It has no effect on a sequence from which a number has been drawn.
    #[must_use]
    #[doc(alias("START WITH", "first", "starting_at"))]
    pub fn start_with(mut self, start: i64) -> Self {
        self.start = start;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key; `None` for a sequence without one.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the number of the first draw.
    pub fn start(&self) -> i64 {
        self.start
    }

    /// Checks whether the sequence can be used.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidStart`].
    pub fn validate(&self) -> Result<(), Error> {
        NameKind::Sequence.check(&self.name)?;
        if let Some(key) = &self.key {
            NameKind::SequenceKey.check(key)?;
        }
        if self.start < FIRST_NUMBER {
            return Err(Error::InvalidStart {
                sequence: self.to_string(),
                start: self.start,
            });
        }
        Ok(())
    }

    /// The key as stored in the database: empty without one.
    pub(crate) fn scope(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sequence {:?}", self.name)?;
        match &self.key {
            Some(key) => write!(f, " of {key:?}"),
            None => Ok(()),
        }
    }
}

/// A sequence from which a number was drawn, as returned by [`sequences`](crate::InspectExt::sequences).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceInfo {
    /// The name.
    pub name: String,
    /// The key; `None` for a sequence without one.
    pub key: Option<String>,
    /// The last number drawn by a committed transaction, or by the open one.
    pub last_number: i64,
}
