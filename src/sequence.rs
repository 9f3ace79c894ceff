//! What is asked of a sequence.

use std::fmt;

use crate::Error;
use crate::limits::FIRST_NUMBER;
use crate::name::{self, Subject};

/// A gap-free sequence of numbers: a name and, when there is one sequence for each of many objects, the
/// object's key.
///
/// Numbers start at 1, or at [`starting_at`](Self::starting_at), and go up to `i64::MAX`. Name and key
/// have 1 to [`MAX_NAME_CHARS`](crate::MAX_NAME_CHARS) (255) characters each, without NUL, and are compared
/// as bytes. A sequence needs no registration: the first draw makes it.
///
/// ```
/// use diesel_locks::Sequence;
///
/// let passes = Sequence::new("pass", 4711); // those of the meeting 4711
/// let invoices = Sequence::named("invoice").starting_at(1000);
/// assert_eq!((passes.name(), passes.key()), ("pass", Some("4711")));
/// assert_eq!((invoices.key(), invoices.first()), (None, 1000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sequence {
    name: String,
    key: Option<String>,
    first: i64,
}

impl Sequence {
    /// The sequence of one object among many: of passes of a meeting, of lines of an order.
    ///
    /// The name may be an application's enum.
    pub fn new(name: impl AsRef<str>, key: impl fmt::Display) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            key: Some(key.to_string()),
            first: FIRST_NUMBER,
        }
    }

    /// The only sequence of that name.
    pub fn named(name: impl AsRef<str>) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            key: None,
            first: FIRST_NUMBER,
        }
    }

    /// The number of the very first draw, from 1 on. A sequence from which a number has been drawn goes
    /// on from there, whatever this says.
    #[must_use]
    pub fn starting_at(mut self, first: i64) -> Self {
        self.first = first;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose sequence it is; `None` for the only one of its name.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The number of the very first draw.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// `Ok` when the sequence can be used.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidFirstNumber`].
    pub fn check(&self) -> Result<(), Error> {
        name::check(Subject::Sequence, &self.name)?;
        if let Some(key) = &self.key {
            name::check(Subject::SequenceKey, key)?;
        }
        if self.first < FIRST_NUMBER {
            return Err(Error::InvalidFirstNumber {
                sequence: self.to_string(),
                first: self.first,
            });
        }
        Ok(())
    }

    /// What stands for the key in the database.
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
