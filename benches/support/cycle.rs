//! What is measured: one transaction around some work, with the lock of a variant.

use diesel::QueryResult;
use diesel_locks::Retention;
use diesel_locks::prelude::*;

use super::backend::Backend;
use super::variant::Variant;

/// What happens under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One row by its primary key.
    ReadOnly,
    /// One row, another for each connection.
    Writing,
}

impl Work {
    pub(crate) const ALL: [Self; 2] = [Self::ReadOnly, Self::Writing];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Writing => "writing",
        }
    }

    pub(crate) fn run<C: Backend>(self, conn: &mut C, connection: usize) -> QueryResult<()> {
        match self {
            Self::ReadOnly => conn.read_bond(connection),
            Self::Writing => conn.write_bond(connection),
        }
    }
}

/// `work` in a transaction, with the lock on `id` that the variant stands for.
pub(crate) fn cycle<C: Backend>(
    conn: &mut C,
    variant: Variant,
    id: &str,
    work: impl FnOnce(&mut C) -> QueryResult<()>,
) -> QueryResult<()> {
    match variant {
        Variant::Baseline => conn.transaction(work),
        Variant::InsertDelete => conn.transaction(|conn| {
            conn.insert_and_delete_lock(id)?;
            work(conn)
        }),
        Variant::Advisory => conn.with_advisory_lock(id, work),
        Variant::Transient => conn.with_object_lock(id, work),
        Variant::Kept => {
            conn.with_object_lock(LockRequest::new(id).retention(Retention::Kept), work)
        }
    }
}
