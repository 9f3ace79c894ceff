//! Isolation levels.

use std::fmt;

/// What a transaction sees of others that run at the same time.
///
/// | | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | `ReadCommitted` | yes, the default | yes | [`Error::Unsupported`](crate::Error::Unsupported) |
/// | `RepeatableRead` | a snapshot; an update of a row that has changed since fails | the default; a snapshot for plain reads, while updates and locking reads see what is committed | [`Error::Unsupported`](crate::Error::Unsupported) |
/// | `Serializable` | a snapshot; transactions that can't be put in order fail | plain reads lock the rows shared; deadlocks instead of failures | its only level: one writer at a time |
///
/// READ UNCOMMITTED is left out: PostgreSQL has none, and nothing is right under it that is not right
/// under READ COMMITTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Each statement sees what was committed before it began.
    ReadCommitted,
    /// The transaction reads from one snapshot.
    RepeatableRead,
    /// As if transactions ran one after the other.
    Serializable,
}

impl IsolationLevel {
    /// As in SQL.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

impl fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.sql())
    }
}
