//! What is asked of a sequence.

use std::fmt;

use crate::Error;
use crate::limits::FIRST_NUMBER;
use crate::name::{self, NameKind};

/// A gap-free sequence of numbers: a name and, when there is one sequence for each of many objects, the
/// object's key.
///
/// Numbers start at 1, or at [`start_with`](Self::start_with), and go up to `i64::MAX`. Name and key
/// have 1 to [`MAX_NAME_CHARS`](crate::MAX_NAME_CHARS) (255) characters each, without NUL, and are compared
/// as bytes. A sequence needs no registration: the first draw makes it.
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
pub struct Sequence {
    name: String,
    key: Option<String>,
    start: i64,
}

impl Sequence {
    /// The only sequence of that name. The name may be an application's enum.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            key: None,
            start: FIRST_NUMBER,
        }
    }

    /// The sequence of one object among many: the passes of a meeting, the lines of an order.
    #[must_use]
    pub fn for_key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// The number of the very first draw, from 1 on. A sequence from which a number has been drawn goes
    /// on from there, whatever this says.
    #[must_use]
    pub fn start_with(mut self, start: i64) -> Self {
        self.start = start;
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
    pub fn start(&self) -> i64 {
        self.start
    }

    /// `Ok` when the sequence can be used.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidStart`].
    pub fn validate(&self) -> Result<(), Error> {
        name::validate(NameKind::Sequence, &self.name)?;
        if let Some(key) = &self.key {
            name::validate(NameKind::SequenceKey, key)?;
        }
        if self.start < FIRST_NUMBER {
            return Err(Error::InvalidStart {
                sequence: self.to_string(),
                start: self.start,
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
