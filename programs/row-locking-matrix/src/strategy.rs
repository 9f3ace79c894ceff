//! The strategies to increment a number.

use std::fmt;

use serde::Serialize;

use crate::isolation::IsolationLevel;

/// A strategy to take the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Strategy {
    /// SELECT, then UPDATE to what was read plus one.
    Plain,
    /// A cursor, then UPDATE .. WHERE CURRENT OF it: the equivalent of JDBC's updatable result set.
    Cursor,
    /// SELECT .. FOR UPDATE, then UPDATE.
    ForUpdate,
    /// A cursor FOR UPDATE, then UPDATE .. WHERE CURRENT OF it.
    CursorForUpdate,
    /// One UPDATE that adds one and returns the result.
    OneUpdate,
    /// `next_number` of diesel-locks.
    NextNumber,
}

impl Strategy {
    pub(crate) const ALL: [Self; 6] = [
        Self::Plain,
        Self::Cursor,
        Self::ForUpdate,
        Self::CursorForUpdate,
        Self::OneUpdate,
        Self::NextNumber,
    ];

    /// The title of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Plain => "SELECT, UPDATE",
            Self::Cursor => "cursor",
            Self::ForUpdate => "SELECT FOR UPDATE, UPDATE",
            Self::CursorForUpdate => "cursor FOR UPDATE",
            Self::OneUpdate => "one UPDATE",
            Self::NextNumber => "`next_number`",
        }
    }

    /// Whether no number may be lost: a strategy that locks what it reads is right at any level, and every strategy is right at
    /// SERIALIZABLE.
    pub(crate) fn must_be_right(self, isolation: IsolationLevel) -> bool {
        !matches!(self, Self::Plain | Self::Cursor) || isolation == IsolationLevel::Serializable
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}
