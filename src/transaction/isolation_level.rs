//! Isolation levels.

use std::fmt;

/// The isolation level of a transaction: which changes of concurrent transactions it sees.
///
/// | | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | `ReadCommitted` | yes, the default | yes | [`Error::Unsupported`](crate::Error::Unsupported) |
/// | `RepeatableRead` | a snapshot; an update of a row that has changed since fails | the default; a snapshot for plain reads, while updates and locking reads see what is committed | [`Error::Unsupported`](crate::Error::Unsupported) |
/// | `Serializable` | a snapshot; a transaction that conflicts with a concurrent one fails | plain reads lock the rows shared; deadlocks instead of failures | its only level: one writer at a time |
///
/// READ UNCOMMITTED is not supported: PostgreSQL does not have it, and it has no advantage over READ COMMITTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Each statement sees the data committed before it started.
    ReadCommitted,
    /// The transaction reads from one snapshot.
    RepeatableRead,
    /// The result is as if transactions ran one after the other.
    Serializable,
}

impl IsolationLevel {
    /// The level in SQL.
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
